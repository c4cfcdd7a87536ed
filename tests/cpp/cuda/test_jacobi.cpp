// small_svd of csrc/cuda on the host: the factors multiply to the matrix, are orthonormal and
// descend; also under the address and thread sanitizers.
//
// Mutations of a scratch copy that these tests were seen to catch
//   ThreadSanitizer     the barrier after a round of the tournament
//   AddressSanitizer    the check of an odd number of columns
//   by wrong values     v at the length that rotations leave it (128 x 128)
#include "cuda/spectral/jacobi.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../check.h"
#include "core/math/jacobi_math.h"
#include "cuda_runtime.h"

using simcore::ColumnPair;
using simcore::cuda::SmallSvd;

namespace {

struct Result {
  std::vector<float> u, s, v;
};

Result compute(const std::vector<float>& m, int64_t count, int64_t rows, int64_t columns) {
  const float nan = std::nanf("");
  Result r{std::vector<float>(m.size(), nan), std::vector<float>(count * columns, nan),
           std::vector<float>(count * columns * columns, nan)};
  simcore::cuda::small_svd({count, rows, columns, m.data(), r.u.data(), r.s.data(), r.v.data()},
                           nullptr);
  return r;
}

// Largest entry of a' b - I over the columns that are not zero, [rows, columns] both.
double orthonormality(const float* a, int64_t rows, int64_t columns, const float* s) {
  double worst = 0;
  for (int64_t k = 0; k < columns; k++)
    for (int64_t l = 0; l < columns; l++) {
      if (s[k] <= 1e-4f * s[0] || s[l] <= 1e-4f * s[0]) continue;
      double dot = 0;
      for (int64_t i = 0; i < rows; i++)
        dot += double(a[i * columns + k]) * double(a[i * columns + l]);
      worst = std::max(worst, std::fabs(dot - (k == l)));
    }
  return worst;
}

// Returns the singular values of a matrix [rows, columns] in descending order, by plain loops of
// one-sided Jacobi in float64.
std::vector<double> singular_values(const float* matrix, int64_t rows, int64_t columns) {
  std::vector<std::vector<double>> m;
  m.resize(size_t(columns), std::vector<double>(rows));
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = 0; k < columns; k++) m[size_t(k)][size_t(i)] = double(matrix[i * columns + k]);
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  for (bool rotated = true; rotated;) {
    rotated = false;
    for (size_t k = 0; k < m.size(); k++)
      for (size_t l = k + 1; l < m.size(); l++) {
        const double a = dot(m[k], m[k]), b = dot(m[l], m[l]), c = dot(m[k], m[l]);
        if (!(c * c > 1e-28 * a * b)) continue;
        const double angle = 0.5 * std::atan2(2 * c, a - b);
        for (size_t i = 0; i < m[k].size(); i++) {
          const double x = m[k][i], y = m[l][i];
          m[k][i] = std::cos(angle) * x + std::sin(angle) * y;
          m[l][i] = std::cos(angle) * y - std::sin(angle) * x;
        }
        rotated = true;
      }
  }
  std::vector<double> lengths;
  for (const auto& column : m) lengths.push_back(std::sqrt(dot(column, column)));
  std::sort(lengths.rbegin(), lengths.rend());
  return lengths;
}

void check_factors(const std::vector<float>& m, int64_t count, int64_t rows, int64_t columns) {
  const Result r = compute(m, count, rows, columns);
  for (int64_t b = 0; b < count; b++) {
    const float *u = &r.u[b * rows * columns], *s = &r.s[b * columns];
    const float* v = &r.v[b * columns * columns];
    const float* matrix = &m[b * rows * columns];
    for (int64_t k = 0; k + 1 < columns; k++) CHECK(s[k] >= s[k + 1]);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) {
        double product = 0;
        for (int64_t k = 0; k < columns; k++)
          product += double(u[i * columns + k]) * double(s[k]) * double(v[j * columns + k]);
        CHECK_NEAR(product, double(matrix[i * columns + j]), 3e-6 * double(s[0]));
      }
    CHECK(orthonormality(u, rows, columns, s) < 1e-5);
    CHECK(orthonormality(v, columns, columns, s) < 1e-5);
    const std::vector<double> wanted = singular_values(matrix, rows, columns);
    for (int64_t k = 0; k < columns; k++)
      CHECK_NEAR(double(s[k]), wanted[size_t(k)], 2e-6 * wanted[0]);
  }
}

std::vector<float> random_matrices(int64_t count, int64_t rows, int64_t columns) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> m(size_t(count * rows * columns));
  for (float& value : m) value = normal(generator);
  return m;
}

}  // namespace

TEST(factors_of_all_shapes) {
  struct Shape {
    int64_t rows, columns;
  };
  for (const Shape shape : {Shape{1, 1}, {2, 2}, {5, 3}, {21, 21}, {33, 10}, {128, 7}}) {
    check::context = std::to_string(shape.rows) + " x " + std::to_string(shape.columns);
    check_factors(random_matrices(2, shape.rows, shape.columns), 2, shape.rows, shape.columns);
  }
}

// Under ThreadSanitizer, which has seen every barrier after a few columns, fewer of them.
TEST(the_largest_matrices) {
  constexpr int64_t columns = check::kOneCase ? 16 : simcore::cuda::kMostJacobi;
  check::context = "128 rows";
  check_factors(random_matrices(1, 128, columns), 1, 128, columns);
}

TEST(ranks_that_are_not_full_and_lengths_far_apart) {
  check::context = "rank 1";
  std::vector<float> m(20 * 6);
  for (int i = 0; i < 20; i++)
    for (int k = 0; k < 6; k++) m[size_t(i * 6 + k)] = k == 4 ? 0 : float((i + 1) * (k + 1));
  check_factors(m, 1, 20, 6);
  check::context = "decay";
  m = random_matrices(1, 16, 8);
  for (size_t e = 0; e < m.size(); e++) m[e] *= std::pow(10.0f, -float(e % 8));
  check_factors(m, 1, 16, 8);
  check::context = "zero";
  const Result zero = compute(std::vector<float>(9, 0.0f), 1, 3, 3);
  for (const float s : zero.s) CHECK(s == 0);
  for (const float u : zero.u) CHECK(u == 0);
}

// pwcca in simcore/_ops/spectral_batched.py fills matrices up with rows and columns of zeros.
TEST(rows_and_columns_of_zeros_stay_apart) {
  constexpr int64_t kRows = 9, kColumns = 6, kSide = 16;
  const std::vector<float> small = random_matrices(1, kRows, kColumns);
  std::vector<float> m(kSide * kSide, 0.0f);
  for (int64_t i = 0; i < kRows; i++)
    for (int64_t k = 0; k < kColumns; k++)
      m[size_t(i * kSide + k)] = small[size_t(i * kColumns + k)];
  const Result r = compute(m, 1, kSide, kSide), alone = compute(small, 1, kRows, kColumns);
  for (int64_t k = 0; k < kSide; k++) {
    check::context = "singular value " + std::to_string(k);
    CHECK_NEAR(r.s[size_t(k)], k < kColumns ? alone.s[size_t(k)] : 0.0, 1e-6 * alone.s[0]);
    for (int64_t i = 0; i < kSide; i++) {
      const bool u_inside = i < kRows && k < kColumns, v_inside = (i < kColumns) == (k < kColumns);
      if (!u_inside) CHECK(r.u[size_t(i * kSide + k)] == 0);
      if (!v_inside) CHECK(r.v[size_t(i * kSide + k)] == 0);
    }
  }
}

TEST(a_tournament_is_complete) {
  for (const int players : {2, 4, 10, 128}) {
    std::vector<int> met(size_t(players * players));
    for (int round = 0; round < players - 1; round++) {
      std::vector<int> busy(size_t(players), 0);
      for (int pair = 0; pair < players / 2; pair++) {
        const ColumnPair p = simcore::tournament_pair(players, round, pair);
        CHECK(0 <= p.first && p.first < p.second && p.second < players);
        CHECK(busy[size_t(p.first)]++ == 0 && busy[size_t(p.second)]++ == 0);
        met[size_t(p.first * players + p.second)]++;
      }
    }
    for (int a = 0; a < players; a++)
      for (int b = a + 1; b < players; b++) CHECK(met[size_t(a * players + b)] == 1);
  }
}

int main(int count, char** arguments) { return check::main(count, arguments); }
