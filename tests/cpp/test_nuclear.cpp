// Nuclear norms: the rational square root, the band reduction, and whole grids against Jacobi.
#include "cpu/nuclear.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.h"
#include "cpu/isa.h"
#include "cpu/spectral.h"

namespace {
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
double naive(const Matrix& x, int64_t p, const Matrix& y, int64_t q, int64_t n) {
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

TEST(band_reduction_keeps_eigenvalues) {
  const int64_t width = isa_table<double>().width;
  for (int64_t size : {kBand, 2 * kBand, 5 * kBand}) {
    const Matrix half = random(size * size, unsigned(size));
    Matrix a(size * size), panels(size * size), work(band_work(size)), band(size * (kBand + 1));
    for (int64_t i = 0; i < size; i++)
      for (int64_t j = 0; j < size; j++) {
        for (int64_t k = 0; k < size; k++)
          a[i * size + j] += half[i * size + k] * half[j * size + k] / double(size);
        panels[(j / width * size + i) * width + j % width] = a[i * size + j];
      }
    spectral_table().reduce_to_band(panels.data(), size, work.data(), band.data());
    Matrix reduced(size * size);
    for (int64_t i = 0; i < size; i++)
      for (int64_t d = 0; d <= kBand && i + d < size; d++)
        reduced[(i + d) * size + i] = reduced[i * size + i + d] = band[i * (kBand + 1) + d];
    const Matrix want = eigenvalues(a, size), got = eigenvalues(reduced, size);
    for (int64_t i = 0; i < size; i++) CHECK_NEAR(got[i], want[i], 1e-12);

    Matrix shifts(kPoles), traces(kPoles);
    for (int64_t j = 0; j < kPoles; j++) shifts[j] = std::pow(10.0, double(j) / 4 - 8);
    spectral_table().resolvent_traces(band.data(), size, shifts.data(), traces.data());
    for (int64_t j = 0; j < kPoles; j++) {
      double trace = 0;
      for (double value : want) trace += 1 / (value + shifts[j]);
      CHECK_NEAR(traces[j] / trace, 1.0, 1e-7);
    }
  }
}

TEST(grids_match_jacobi) {
  const int64_t n = 300;
  const std::vector<int64_t> widths{1, 7, 33, 61};
  std::vector<Matrix> layers;
  NuclearProblem problem;
  problem.n = n;
  for (int64_t width : widths) layers.push_back(random(n * width, unsigned(width)));
  for (size_t l = 0; l < widths.size(); l++)
    problem.x.push_back({layers[l].data(), DType::f64, widths[l], widths[l], 1});
  const NuclearResult got = nuclear_norms(problem, 1, Runtime::serial());
  const int64_t count = int64_t(widths.size());
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < count; j++) {
      const double want = naive(layers[i], widths[i], layers[j], widths[j], n);
      CHECK_NEAR(got.xy[i * count + j] / want, 1.0, 1e-5);
      CHECK(got.xy[i * count + j] == got.xy[j * count + i]);
    }
}

int main() { return check::main(); }
