// Affine couplings against plain loops in long double: every type, layout and direction.
#include "cpu/coupling/coupling.h"

#include <algorithm>
#include <string>

#include "check.h"
#include "cpu/isa/isa.h"
#include "naive_coupling.h"

using naive::DType;
using simcore::cpu::isa_table;
using simcore::cpu::Runtime;

namespace {

template <typename T>
void agrees(const naive::Problem& p, const Runtime& rt) {
  naive::Coupled<T> got(p.coupling);
  simcore::cpu::couple(p.coupling, got.out.data(), got.log_det.data(), rt);
  simcore::cpu::couple_gradients(p.coupling, p.grad.view, p.grad_log_det.view, got.grad_x.data(),
                                 got.grad_params.data(), rt);
  naive::check_coupled(p, got);
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
          agrees<T>(naive::make_problem(2, width < 100 ? 33 : 5, width, dtype, transposed, inverse),
                    rt);
        }
}

// Checks tanh and its slope over the whole range: in rows of one entry the log-determinant is s
// alone.
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
  for (double clamp = 1e-3; clamp <= simcore::kMaxClamp; clamp *= 1.01) {
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

// The tolerances are the errors that coupling_impl.h states.
TEST(soft_clamp) {
  clamp_matches_tanh<float>(4e-7);
  clamp_matches_tanh<double>(1e-15);
}

TEST(scales) {
  scale_matches_exp<float>(2e-7);
  scale_matches_exp<double>(4e-16);
}

TEST(empty_inputs_are_fine) {
  agrees<float>(naive::make_problem(0, 3, 5, DType::f32, false, false), Runtime::serial());
  agrees<float>(naive::make_problem(2, 0, 5, DType::f32, false, false), Runtime::serial());
  agrees<float>(naive::make_problem(2, 3, 0, DType::f32, false, true), Runtime::serial());
}

int main() { return check::main(); }
