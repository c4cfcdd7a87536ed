// Affine couplings against plain loops in long double: every type, layout and direction.
#include "cpu/coupling.h"

#include <algorithm>
#include <string>

#include "check.h"
#include "cpu/isa.h"
#include "naive.h"

using naive::DType;
using simcore::cpu::Coupling;
using simcore::cpu::isa_table;
using simcore::cpu::RowsView;
using simcore::cpu::Runtime;

namespace {

template <typename T>
constexpr double kTolerance = sizeof(T) == 8 ? 2e-15 : 1e-6;  // relative, of numbers near 1

// An array [batch, rows, columns] that owns its numbers, with gaps after every row.
struct Array {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
  std::vector<unsigned char> storage;
  RowsView view{};

  double at(int64_t b, int64_t i, int64_t k) const { return values[(b * rows + i) * columns + k]; }
};

template <typename Entry>
Array make_array(int64_t batch, int64_t rows, int64_t columns, DType dtype, bool transposed,
                 const Entry& entry) {
  const int64_t row_stride = transposed ? 1 : columns + 3, col_stride = transposed ? rows + 2 : 1;
  const int64_t batch_stride = transposed ? columns * (rows + 2) : rows * (columns + 3);
  Array array{rows, columns, {}, {}, {nullptr, dtype, batch_stride, row_stride, col_stride}};
  array.storage.resize(batch * batch_stride * naive::bytes_of(dtype) + 1);
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t k = 0; k < columns; k++)
        array.values.push_back(naive::store(
            array.storage, dtype, b * batch_stride + i * row_stride + k * col_stride, entry(k)));
  array.view.data = array.storage.data();
  return array;
}

struct Problem {
  Array x, params, grad, grad_log_det;
  Coupling coupling;
};

Problem make_problem(int64_t batch, int64_t rows, int64_t width, DType dtype, bool transposed,
                     bool inverse) {
  std::mt19937 generator(unsigned(rows * 1000 + width));
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto any = [&](int64_t) { return uniform(generator); };
  const auto params = [&](int64_t k) {  // s_raw: into both ends of the clamp, tiny, and 0
    const double value = uniform(generator);
    if (k >= width) return value;
    return k % 7 == 3 ? 0 : k % 5 == 1 ? value * 1e-4 : k % 11 == 2 ? value * 100 : value * 3;
  };
  Problem p{make_array(batch, rows, width, dtype, transposed, any),
            make_array(batch, rows, 2 * width, dtype, transposed, params),
            make_array(batch, rows, width, dtype, transposed, any),
            make_array(batch, rows, 1, dtype, transposed, any),
            {}};
  p.coupling = {batch, rows, width, p.x.view, p.params.view, 1.3, inverse};
  return p;
}

struct Entry {
  long double out, s, grad_x, grad_s_raw, grad_t;
};

Entry naive_entry(const Problem& p, int64_t b, int64_t i, int64_t k) {
  const long double c = p.coupling.clamp, x = p.x.at(b, i, k), s_raw = p.params.at(b, i, k);
  const long double t = p.params.at(b, i, p.coupling.width + k), g = p.grad.at(b, i, k);
  const long double l = p.grad_log_det.at(b, i, 0);
  const long double u = std::tanh(s_raw / c), slope = 1 / std::pow(std::cosh(s_raw / c), 2);
  const long double s = c * u;
  if (p.coupling.inverse) {
    const long double e = std::exp(-s);
    // The gradients take what was kept: here x stands for the result of the inverse.
    return {(x - t) * e, -s, g * e, -(g * x + l) * slope, -g * e};
  }
  const long double e = std::exp(s);
  return {x * e + t, s, g * e, (g * x * e + l) * slope, g};
}

template <typename T>
void agrees(const Problem& p, const Runtime& rt) {
  const Coupling& c = p.coupling;
  const int64_t rows = c.batch * c.rows, k = c.width;
  std::vector<T> out(rows * k), log_det(rows), grad_x(rows * k), grad_params(rows * 2 * k);
  simcore::cpu::couple(c, out.data(), log_det.data(), rt);
  simcore::cpu::couple_gradients(c, p.grad.view, p.grad_log_det.view, grad_x.data(),
                                 grad_params.data(), rt);
  for (int64_t row = 0; row < rows; row++) {
    long double sum = 0, sizes = 1;
    for (int64_t j = 0; j < k; j++) {
      const Entry want = naive_entry(p, row / c.rows, row % c.rows, j);
      const auto near = [&](T got, long double wanted) {
        CHECK_NEAR(double(got), double(wanted), kTolerance<T> * (1 + std::fabs(double(wanted))));
      };
      near(out[row * k + j], want.out);
      near(grad_x[row * k + j], want.grad_x);
      near(grad_params[row * 2 * k + j], want.grad_s_raw);
      near(grad_params[row * 2 * k + k + j], want.grad_t);
      sum += want.s;
      sizes += std::fabs(want.s);
    }
    CHECK_NEAR(double(log_det[row]), double(sum), kTolerance<T> * double(sizes));
  }
}

template <typename T>
void agrees_everywhere(const Runtime& rt) {
  const DType own = sizeof(T) == 8 ? DType::f64 : DType::f32;
  for (const int64_t width : {1, 3, 31, 64, 255, 256, 257, 700})
    for (const DType dtype : {own, DType::bf16, DType::f16})
      for (const bool transposed : {false, true})
        for (const bool inverse : {false, true}) {
          check::context = std::string(isa_table<T>().name) + ", width " + std::to_string(width) +
                           ", dtype " + std::to_string(int(dtype)) +
                           (transposed ? ", transposed" : "") + (inverse ? ", inverse" : "");
          agrees<T>(make_problem(2, width < 100 ? 33 : 5, width, dtype, transposed, inverse), rt);
        }
}

// tanh and its slope over the whole range, alone: the log-determinant of rows of one entry.
template <typename T>
void clamp_matches_tanh(double tolerance) {
  const auto& isa = isa_table<T>();
  for (int sign = -1; sign <= 1; sign += 2)
    for (double z = 1e-30; z < 50; z = z < 1e-3 ? z * 7 : z * 1.003) {
      const T s_raw = T(sign * z), zero = T(0), one = T(1);
      T out, grad_x, grad_s_raw, grad_t;
      double s = 0;
      isa.couple[0](&zero, &s_raw, &zero, 1, one, {0, 0}, &out, &s);
      CHECK_NEAR(s / std::tanh(double(s_raw)), 1, tolerance);
      isa.couple_gradients[0](&zero, one, &zero, &s_raw, 1, one, {0, 0}, &grad_x, &grad_s_raw,
                              &grad_t);
      const double slope = 1 / std::pow(std::cosh(std::min(std::fabs(double(s_raw)), 40.0)), 2);
      CHECK_NEAR(double(grad_s_raw) / slope, 1, 2 * tolerance * std::max(1.0, z));
    }
}

template <typename T>
void scale_matches_exp(double tolerance) {
  const auto& isa = isa_table<T>();
  const T large = T(1e6), zero = T(0), one = T(1);
  for (double clamp = 1e-3; clamp <= simcore::cpu::kMaxClamp; clamp *= 1.01) {
    T out[2];
    double s = 0;
    isa.couple[0](&one, &large, &zero, 1, T(clamp), {0, 0}, &out[0], &s);
    isa.couple[1](&one, &large, &zero, 1, T(clamp), {0, 0}, &out[1], &s);
    const double bound = tolerance * std::max(1.0, clamp);
    CHECK_NEAR(double(out[0]) / std::exp(double(T(clamp))), 1, bound);
    CHECK_NEAR(double(out[1]) * std::exp(double(T(clamp))), 1, bound);
  }
}

}  // namespace

TEST(agrees_with_plain_loops) {
  for (const int threads : {1, 3}) {
    agrees_everywhere<float>(naive::threads(threads));
    agrees_everywhere<double>(naive::threads(threads));
  }
}

// What isa_coupling_impl.h states.
TEST(soft_clamp) {
  clamp_matches_tanh<float>(4e-7);
  clamp_matches_tanh<double>(1e-15);
}

TEST(scales) {
  scale_matches_exp<float>(2e-7);
  scale_matches_exp<double>(4e-16);
}

TEST(empty_inputs_are_fine) {
  agrees<float>(make_problem(0, 3, 5, DType::f32, false, false), Runtime::serial());
  agrees<float>(make_problem(2, 0, 5, DType::f32, false, false), Runtime::serial());
  agrees<float>(make_problem(2, 3, 0, DType::f32, false, true), Runtime::serial());
}

int main() { return check::main(); }
