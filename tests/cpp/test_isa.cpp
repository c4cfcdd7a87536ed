// The inner loops of the instruction set in use (ctest runs this file once per set).
#include "cpu/isa/isa.h"

#include <algorithm>

#include "check.h"
#include "naive.h"

using naive::DType;
using simcore::cpu::Centring;
using simcore::cpu::isa_table;
using simcore::cpu::IsaTable;
using simcore::cpu::make_centring;

namespace {

template <typename T>
constexpr DType kDType = sizeof(T) == 8 ? DType::f64 : DType::f32;
// Rounding of a short sum of numbers near 1, and of one exponential.
template <typename T>
constexpr double kRounding = sizeof(T) == 8 ? 1e-13 : 1e-5;

template <typename T>
std::vector<T> random(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(normal(generator));
  return values;
}

template <typename T>
double centred(const naive::Layer& layer, const Centring<T>& c, int64_t i, int64_t k) {
  return (layer.at(i, k) * double(c.scale) - double(c.mean_hi[k])) - double(c.mean_lo[k]);
}

template <typename T>
void micro_matches_plain_loops() {
  const IsaTable<T>& isa = isa_table<T>();
  const int64_t w = isa.width;
  CHECK(w % isa.mr == 0);  // else a call would read rows of the next panel
  if (w % isa.mr != 0) return;
  for (int panels = 1; panels <= simcore::cpu::kMaxPanels; panels++)
    for (const int64_t depth : {0, 1, 2, 31, 129})
      for (const bool accumulate : {false, true}) {
        check::context = std::string(isa.name) + ", panels " + std::to_string(panels) + ", depth " +
                         std::to_string(depth);
        const int64_t b_stride = depth * w + 3;  // panels need not touch
        const int64_t c_stride = panels * w + 5;
        const std::vector<T> a = random<T>(depth * w, 1), b = random<T>(panels * b_stride, 2);
        const std::vector<T> before = random<T>(isa.mr * c_stride, 3);
        std::vector<T> c = before;
        isa.micro[panels - 1](a.data(), b.data(), b_stride, depth, c.data(), c_stride, accumulate);
        for (int64_t i = 0; i < isa.mr; i++)
          for (int64_t j = 0; j < c_stride; j++) {
            double wanted = double(before[i * c_stride + j]);
            if (j < panels * w) {  // entries beyond may not be written
              wanted *= accumulate;
              for (int64_t k = 0; k < depth; k++)
                wanted += double(a[k * w + i]) * double(b[j / w * b_stride + k * w + j % w]);
            }
            CHECK_NEAR(double(c[i * c_stride + j]), wanted, 10 * kRounding<T>);
          }
      }
}

template <typename T>
void packs_match_plain_loops() {
  const IsaTable<T>& isa = isa_table<T>();
  const int64_t w = isa.width, n = w + 3;
  for (const int64_t width : {1, 2, 3, 31, 33, 64, 65, 129})
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
      for (const naive::Order order :
           {naive::Order::rows, naive::Order::columns, naive::Order::reversed}) {
        if (sizeof(T) == 4 && dtype == DType::f64) continue;  // float64 is never narrowed
        check::context = std::string(isa.name) + ", width " + std::to_string(width);
        const naive::Layer layer = naive::make_layer(n, width, 5, {dtype, 10, 1, order});
        const Centring<T> c = make_centring<T>(layer.view, n);
        // Full panels, and one of the last rows with zeros behind it.
        for (const auto& [row, rows] : {std::pair(int64_t(1), w), std::pair(n - 2, int64_t(2))}) {
          std::vector<T> panel(width * w, T(-1));
          std::vector<double> norms(w, -1);
          isa.pack_rows(layer.view, c, row, rows, panel.data(), norms.data());
          for (int64_t r = 0; r < w; r++) {
            double norm = 0;
            for (int64_t k = 0; k < width; k++) {
              const double wanted = r < rows ? centred(layer, c, row + r, k) : 0;
              CHECK_NEAR(double(panel[k * w + r]), wanted, kRounding<T>);
              norm += wanted * wanted;
            }
            CHECK_NEAR(norms[r], norm, kRounding<T> * (1 + norm));
          }
        }
        // The columns from the middle on, and all columns but the first: a rest alone, or several
        // panels and a rest.
        for (const int64_t col : {width / 2, int64_t(width > 1)}) {
          const int64_t cols = width - col, padded = (cols + w - 1) / w * w, stride = n * w + 3;
          std::vector<T> panels(padded / w * stride, T(-1));
          isa.pack_columns(layer.view, c, 1, n - 1, col, cols, panels.data(), stride);
          for (int64_t i = 0; i < n - 1; i++)
            for (int64_t j = 0; j < padded; j++)
              CHECK_NEAR(double(panels[j / w * stride + i * w + j % w]),
                         j < cols ? centred(layer, c, i + 1, col + j) : 0, kRounding<T>);
        }
      }
}

template <typename T>
void pack_plain_transposes() {
  const IsaTable<T>& isa = isa_table<T>();
  const int64_t w = isa.width;
  for (const int64_t depth : {1, 31, 64, 65, 129})
    for (const int64_t rows : {int64_t(1), w - 1, w}) {
      const int64_t stride = depth + 2;
      const std::vector<T> source = random<T>(rows * stride, 6);
      std::vector<T> panel(depth * w, T(-1));
      isa.pack_plain(source.data(), stride, rows, depth, panel.data());
      for (int64_t k = 0; k < depth; k++)
        for (int64_t r = 0; r < w; r++)
          CHECK(panel[k * w + r] == (r < rows ? source[r * stride + k] : T(0)));
    }
}

template <typename T>
void rbf_matches_exp() {
  const IsaTable<T>& isa = isa_table<T>();
  const int64_t rows = 3, cols = 3 * isa.width;
  const std::vector<T> norms_i = {T(0), T(4), T(150)};
  std::vector<T> norms_j(cols), dots = random<T>(rows * cols, 7);
  for (int64_t j = 0; j < cols; j++) norms_j[j] = T(j) / 4;
  for (const double gamma : {1e-3, 0.7, 20.0}) {
    std::vector<T> g = dots;
    isa.rbf(g.data(), rows, cols, norms_i.data(), norms_j.data(), T(gamma), T(0.25));
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < cols; j++) {
        const double d = double(norms_i[i]) + double(norms_j[j]) - 2 * double(dots[i * cols + j]);
        CHECK_NEAR(double(g[i * cols + j]), std::exp(-gamma * std::max(0.0, d)) - 0.25,
                   kRounding<T>);
      }
  }
}

template <typename T>
void distance_matches_sqrt() {
  const IsaTable<T>& isa = isa_table<T>();
  const int64_t rows = 3, cols = 3 * isa.width;
  const std::vector<T> norms_i = {T(0), T(4), T(150)};
  std::vector<T> norms_j(cols), dots = random<T>(rows * cols, 7);
  for (int64_t j = 0; j < cols; j++) norms_j[j] = T(j) / 4;
  std::vector<T> g = dots;
  isa.distance(g.data(), rows, cols, norms_i.data(), norms_j.data(), T(0.25));
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      const double d = double(norms_i[i]) + double(norms_j[j]) - 2 * double(dots[i * cols + j]);
      CHECK_NEAR(double(g[i * cols + j]), std::sqrt(std::max(0.0, d)) - 0.25, 10 * kRounding<T>);
    }
}

template <typename T>
void select_keeps_what_lies_between() {
  const IsaTable<T>& isa = isa_table<T>();
  const int64_t cols = 129, begin = 5, end = 120;
  const std::vector<T> dots = random<T>(cols, 8);
  const std::vector<T> norms(cols, T(2));
  const T lo = T(2), hi = T(5);
  std::vector<T> kept(end - begin), wanted;
  int64_t below = 10, under = 10;
  const int64_t count =
      isa.select(dots.data(), begin, end, T(1.5), norms.data(), lo, hi, kept.data(), &below);
  for (int64_t j = begin; j < end; j++) {
    const T d = std::max(T(0), T(3.5) - 2 * dots[j]);
    under += d < lo;
    if (d >= lo && d <= hi) wanted.push_back(d);
  }
  CHECK(below == under);
  CHECK(count == int64_t(wanted.size()) && count > 0 && count < end - begin);
  for (size_t i = 0; i < wanted.size(); i++)
    CHECK_NEAR(double(kept[i]), double(wanted[i]), kRounding<T>);
}

// Computes x log x of single numbers, where no other term hides an error.
template <typename T>
void mixture_terms_match_log(double tolerance) {
  const IsaTable<T>& isa = isa_table<T>();
  const int exponents = sizeof(T) == 8 ? 300 : 37;
  std::mt19937 generator(9);
  std::uniform_real_distribution<double> exponent(-exponents, 20), near_one(-1e-3, 1e-3);
  std::vector<T> p(isa.width), q(isa.width);
  for (int i = 0; i < 20000; i++) {
    const double x = i % 4 == 0   ? 1 + near_one(generator)
                     : i % 4 == 1 ? std::exp(near_one(generator) * 1e3)
                                  : std::pow(10.0, exponent(generator));
    p[i % isa.width] = q[i % isa.width] = T(x / 2);
    const double m = 2 * double(p[i % isa.width]);
    if (m == 1) continue;
    double sum = 0;
    isa.pair_sums[0].add(p.data(), 1, q.data(), 1, isa.width, isa.width, &sum, 0);
    CHECK_NEAR(sum / (m * std::log(m)), 1, tolerance);
    p[i % isa.width] = q[i % isa.width] = 0;
  }
  std::fill(p.begin(), p.end(), T(0));
  std::fill(q.begin(), q.end(), T(0));
  double sum = 0;
  isa.pair_sums[0].add(p.data(), 1, q.data(), 1, isa.width, isa.width, &sum, 0);
  CHECK(sum == 0);
}

double term(int measure, double p, double q) {
  return measure == 0 ? (p + q) * std::log(p + q) : measure == 1 ? p * q : (p - q) * (p - q);
}

// Every height and width of a tile, and every length up to a few registers and of whole blocks.
template <typename T>
void pair_sums_match_plain_loops() {
  const IsaTable<T>& isa = isa_table<T>();
  for (int measure = 0; measure < 3; measure++) {
    const auto& pair_sums = isa.pair_sums[measure];
    for (int64_t length = 0; length <= pair_sums.columns;
         length += length < 5 * isa.width ? isa.width : pair_sums.columns / 4)
      for (int64_t p_rows = 1; p_rows <= pair_sums.rows; p_rows++)
        for (int64_t q_rows = 1; q_rows <= 9; q_rows++) {
          check::context = std::string(isa.name) + ", measure " + std::to_string(measure) +
                           ", length " + std::to_string(length) + ", rows " +
                           std::to_string(p_rows) + " and " + std::to_string(q_rows);
          const int64_t stride = length + 5, out_stride = q_rows + 2;
          std::vector<T> p = random<T>(p_rows * stride, 10), q = random<T>(q_rows * stride, 11);
          for (T& value : p) value = std::fabs(value);
          for (T& value : q) value = std::fabs(value);
          std::vector<double> wanted(p_rows * out_stride, 0.5), got = wanted;
          for (int64_t i = 0; i < p_rows; i++)
            for (int64_t j = 0; j < q_rows; j++)
              for (int64_t k = 0; k < length; k++)
                wanted[i * out_stride + j] +=
                    term(measure, double(p[i * stride + k]), double(q[j * stride + k]));
          pair_sums.add(p.data(), p_rows, q.data(), q_rows, stride, length, got.data(), out_stride);
          const double tolerance = 100 * kRounding<T> * (1 + double(length) / 256);
          for (size_t r = 0; r < got.size(); r++) CHECK_NEAR(got[r], wanted[r], tolerance);
        }
  }
}

template <typename T>
void unit_rows_match_plain_loops() {
  const IsaTable<T>& isa = isa_table<T>();
  for (const int64_t length : {1, 2, 7, 16, 33, 512})
    for (const int64_t count : {1, 3, 16, 19}) {
      check::context = std::string(isa.name) + ", " + std::to_string(count) + " rows of " +
                       std::to_string(length);
      std::vector<T> rows = random<T>(count * length + 1, 12);
      std::fill(rows.begin(), rows.begin() + length, T(0.1));    // constant
      rows[(count - 1) * length] = count > 1 ? T(100) : T(0.1);  // the first weight is an outlier
      const std::vector<T> before = rows;
      isa.unit_rows(rows.data(), count, length);
      CHECK(rows.back() == before.back());
      for (int64_t i = 0; i < count; i++) {
        const T* row = before.data() + i * length;
        double mean = 0, square = 0;
        for (int64_t k = 0; k < length; k++) mean += double(row[k]) / double(length);
        for (int64_t k = 0; k < length; k++) square += std::pow(double(row[k]) - mean, 2);
        const bool constant = (i == 0) || length == 1;
        for (int64_t k = 0; k < length; k++)
          CHECK_NEAR(double(rows[i * length + k]),
                     constant ? 0 : (double(row[k]) - mean) / std::sqrt(square), kRounding<T> / 10);
      }
    }
}

template <typename T>
void the_first_largest_entry_is_found() {
  const IsaTable<T>& isa = isa_table<T>();
  for (const int64_t count : {1, 3, 16, 64, 65, 200}) {
    const std::vector<T> x = random<T>(count, 6);
    const auto largest = std::max_element(x.begin(), x.end());
    CHECK(isa.place_of_largest(x.data(), count) == largest - x.begin());
    std::vector<T> nothing(count, T(std::nan("")));
    CHECK(isa.place_of_largest(nothing.data(), count) == 0);
    nothing[count - 1] = T(-1);
    CHECK(isa.place_of_largest(nothing.data(), count) == count - 1);
    for (int64_t first = 0; first < count; first++) {
      std::vector<T> equal(count, T(-3));
      for (int64_t k = first; k < count; k += 7) equal[k] = T(-2);
      CHECK(isa.place_of_largest(equal.data(), count) == first);
    }
  }
}

template <typename T>
void flaws_are_found_wherever_they_stand() {
  const IsaTable<T>& isa = isa_table<T>();
  using simcore::cpu::kNegative;
  using simcore::cpu::kNotFinite;
  for (int64_t count = 0; count <= 40; count++) {
    std::vector<T> x(count + 1, T(0.5));
    x[count] = T(-1);  // beyond
    CHECK(isa.flaws(x.data(), count) == 0);
    for (int64_t k = 0; k < count; k++)
      for (const auto& [value, found] :
           {std::pair{std::nan(""), kNotFinite}, std::pair{double(INFINITY), kNotFinite},
            std::pair{-double(INFINITY), kNotFinite | kNegative}, std::pair{-1e-30, kNegative},
            std::pair{-0.0, 0}}) {
        x[k] = T(value);
        CHECK(isa.flaws(x.data(), count) == found);
        x[k] = T(0.5);
      }
  }
}

template <typename T>
void load_converts_all_types() {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const int64_t stride : {1, 3, -2}) {
      const int64_t count = 37, first = stride < 0 ? (1 - count) * stride : 0;
      std::vector<unsigned char> storage(count * 3 * naive::bytes_of(dtype));
      std::vector<double> wanted;
      for (int64_t k = 0; k < count; k++)
        wanted.push_back(naive::store(storage, dtype, first + k * stride, 0.1 * double(k) - 1));
      std::vector<T> got(count);
      isa_table<T>().load(storage.data() + first * naive::bytes_of(dtype), dtype, stride, count,
                          got.data());
      for (int64_t k = 0; k < count; k++) CHECK(got[k] == T(wanted[k]));
    }
}

}  // namespace

TEST(micro_kernels) {
  micro_matches_plain_loops<float>();
  micro_matches_plain_loops<double>();
}

TEST(packing) {
  packs_match_plain_loops<float>();
  packs_match_plain_loops<double>();
  pack_plain_transposes<float>();
  pack_plain_transposes<double>();
}

TEST(rbf_entries) {
  rbf_matches_exp<float>();
  rbf_matches_exp<double>();
}

TEST(distance_entries) {
  distance_matches_sqrt<float>();
  distance_matches_sqrt<double>();
}

TEST(median_selection) {
  select_keeps_what_lies_between<float>();
  select_keeps_what_lies_between<double>();
}

// Bounds in float32: the error that attention_impl.h states, and half a unit in the last place of
// the product.
TEST(mixture_terms) {
  mixture_terms_match_log<float>(2.1e-7);
  mixture_terms_match_log<double>(1e-15);
}

TEST(sums_over_pairs_of_rows) {
  pair_sums_match_plain_loops<float>();
  pair_sums_match_plain_loops<double>();
}

TEST(rows_of_attention) {
  unit_rows_match_plain_loops<float>();
  unit_rows_match_plain_loops<double>();
  flaws_are_found_wherever_they_stand<float>();
  flaws_are_found_wherever_they_stand<double>();
}

TEST(places_of_the_largest_entry) {
  the_first_largest_entry_is_found<float>();
  the_first_largest_entry_is_found<double>();
}

TEST(loading) {
  load_converts_all_types<float>();
  load_converts_all_types<double>();
}

TEST(the_forced_instruction_set_is_used) {
  const char* wanted = std::getenv("SIMCORE_CPU_ISA");
  if (wanted != nullptr && *wanted != '\0') CHECK(std::string(wanted) == simcore::cpu::isa_name());
}

int main() { return check::main(); }
