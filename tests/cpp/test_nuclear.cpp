// Nuclear norms: the rational square root, the band reduction, and whole grids against Jacobi.
#include "cpu/spectral/nuclear.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.h"
#include "cpu/isa/isa.h"
#include "cpu/isa/spectral_table.h"
#include "naive.h"

namespace {
using simcore::LayersProblem;
using namespace simcore::cpu;

using Matrix = std::vector<double>;

Matrix random(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Matrix values(count);
  for (double& value : values) value = normal(generator);
  return values;
}

// Eigenvalues of a symmetric matrix by cyclic Jacobi rotations, ascending.
Matrix eigenvalues(Matrix a, int64_t size) {
  for (int sweep = 0; sweep < 30; sweep++)
    for (int64_t p = 0; p < size; p++)
      for (int64_t q = p + 1; q < size; q++) {
        const double off = a[p * size + q];
        if (off == 0) continue;
        const double theta = (a[q * size + q] - a[p * size + p]) / (2 * off);
        const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::hypot(theta, 1.0));
        const double c = 1 / std::hypot(t, 1.0), s = t * c;
        for (int64_t k = 0; k < size; k++) {
          const double x = a[k * size + p], y = a[k * size + q];
          a[k * size + p] = c * x - s * y, a[k * size + q] = s * x + c * y;
        }
        for (int64_t k = 0; k < size; k++) {
          const double x = a[p * size + k], y = a[q * size + k];
          a[p * size + k] = c * x - s * y, a[q * size + k] = s * x + c * y;
        }
      }
  Matrix values(size);
  for (int64_t i = 0; i < size; i++) values[i] = a[i * size + i];
  std::sort(values.begin(), values.end());
  return values;
}

// sum of singular values of the centred cross-product
double by_jacobi(const Matrix& x, int64_t p, const Matrix& y, int64_t q, int64_t n) {
  const auto centred = [n](Matrix z, int64_t width) {
    for (int64_t k = 0; k < width; k++) {
      double mean = 0;
      for (int64_t i = 0; i < n; i++) mean += z[i * width + k] / double(n);
      for (int64_t i = 0; i < n; i++) z[i * width + k] -= mean;
    }
    return z;
  };
  const Matrix a = centred(x, p), b = centred(y, q);
  Matrix m(p * q), square(p * p);
  for (int64_t i = 0; i < p; i++)
    for (int64_t j = 0; j < q; j++)
      for (int64_t r = 0; r < n; r++) m[i * q + j] += a[r * p + i] * b[r * q + j];
  for (int64_t i = 0; i < p; i++)
    for (int64_t j = 0; j < p; j++)
      for (int64_t k = 0; k < q; k++) square[i * p + j] += m[i * q + k] * m[j * q + k];
  double sum = 0;
  for (double value : eigenvalues(square, p)) sum += std::sqrt(std::max(value, 0.0));
  return sum;
}

}  // namespace

TEST(rational_square_root) {
  const RationalRoot root = rational_root();
  for (double x = 1e-20; x <= 1; x *= 1.3) {
    double sum = 0;
    for (int64_t j = 0; j < kPoles; j++) sum += root.weight[j] * x / (x + root.shift[j]);
    if (x >= 1e-11) CHECK_NEAR(sum / std::sqrt(x), 1.0, 2e-7);
    CHECK_NEAR(sum, std::sqrt(x), 3e-7);
  }
}

// Eigenvalues of m m^T for a row-major [rows, cols] matrix.
Matrix squared_singular_values(const Matrix& m, int64_t rows, int64_t cols) {
  Matrix square(rows * rows);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < rows; j++)
      for (int64_t k = 0; k < cols; k++) square[i * rows + j] += m[i * cols + k] * m[j * cols + k];
  return eigenvalues(square, rows);
}

TEST(band_reduction_keeps_singular_values) {
  if (check::kOneCase) return;  // one thread
  const int64_t width = isa_table<float>().width, b = spectral_table().band;
  for (const auto& [rows, cols] : {std::pair(b, b), std::pair(b, 2 * b), std::pair(2 * b, 2 * b),
                                   std::pair(4 * b, 5 * b), std::pair(b, 4 * b)}) {
    check::context = std::to_string(rows) + " x " + std::to_string(cols);
    const Matrix m = random(rows * cols, unsigned(rows + cols));
    std::vector<float> panels(rows * cols), work(spectral_table().band_work(rows, cols));
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < cols; j++)
        panels[(j / width * rows + i) * width + j % width] = float(m[i * cols + j]);
    Matrix upper(rows * (b + 1));
    spectral_table().reduce_to_band(panels.data(), rows, cols, work.data(), upper.data());
    const int64_t wide = rows + b;
    Matrix reduced(rows * wide);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t d = 0; d <= b; d++) reduced[i * wide + i + d] = upper[i * (b + 1) + d];
    const Matrix want = squared_singular_values(m, rows, cols);
    const Matrix got = squared_singular_values(reduced, rows, wide);
    for (int64_t i = 0; i < rows; i++)
      CHECK_NEAR(std::sqrt(std::max(got[i], 0.0)), std::sqrt(want[i]),
                 2e-6 * std::sqrt(want[rows - 1]));
  }
}

TEST(resolvent_traces_match_eigenvalues) {
  if (check::kOneCase) return;  // one thread
  const int64_t b = spectral_table().band, size = 3 * b;
  const Matrix upper = random(size * (b + 1), 1);
  Matrix a(size * size), band(size * (b + 1));
  for (int64_t i = 0; i < size; i++)
    for (int64_t e = 0; e <= b && i + e < size; e++) {
      double sum = 0;
      for (int64_t d = 0; d + e <= b; d++)
        sum += upper[(i + e) * (b + 1) + d] * upper[i * (b + 1) + d + e];
      band[i * (b + 1) + e] = a[(i + e) * size + i] = a[i * size + i + e] = sum;
    }
  const Matrix values = eigenvalues(a, size);
  Matrix shifts(kPoles), traces(kPoles);
  for (int64_t j = 0; j < kPoles; j++) shifts[j] = std::pow(10.0, double(j) / 4 - 4);
  spectral_table().resolvent_traces(band.data(), size, shifts.data(), traces.data());
  for (int64_t j = 0; j < kPoles; j++) {
    double trace = 0;
    for (double value : values) trace += 1 / (value + shifts[j]);
    CHECK_NEAR(traces[j] / trace, 1.0, 1e-7);
  }
}

TEST(grids_match_jacobi) {
  const int64_t n = 300;
  const std::vector<int64_t> widths{1, 7, 33, 61};
  std::vector<Matrix> layers;
  LayersProblem problem;
  problem.n = n;
  for (int64_t width : widths) layers.push_back(random(n * width, unsigned(width)));
  for (size_t l = 0; l < widths.size(); l++)
    problem.x.push_back({layers[l].data(), DType::f64, widths[l], widths[l], 1});
  const NuclearResult got = nuclear_norms(problem, true, 1, naive::threads(3));
  if (check::kOneCase) return;
  CHECK(got.xy == nuclear_norms(problem, true, 1, Runtime::serial()).xy);
  CHECK(got.xy == nuclear_norms(problem, false, 1, Runtime::serial()).xy);
  const int64_t count = int64_t(widths.size());
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < count; j++) {
      const double want = by_jacobi(layers[i], widths[i], layers[j], widths[j], n);
      CHECK_NEAR(got.xy[i * count + j] / want, 1.0, 1e-5);
      CHECK(got.xy[i * count + j] == got.xy[j * count + i]);
    }
}

int main() { return check::main(); }
