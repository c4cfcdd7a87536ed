// Neuron-level similarity as plain double loops.
#pragma once

#include <cmath>
#include <vector>

#include "check.h"
#include "naive.h"

namespace naive {

// Centred columns [n, p] in double.
inline std::vector<double> centred(const Layer& layer) {
  const int64_t n = layer.n, p = layer.view.width;
  std::vector<double> x(n * p);
  for (int64_t k = 0; k < p; k++) {
    double mean = 0;
    for (int64_t i = 0; i < n; i++) mean += (layer.at(i, k) - layer.at(0, k)) / double(n);
    for (int64_t i = 0; i < n; i++) x[i * p + k] = layer.at(i, k) - layer.at(0, k) - mean;
  }
  return x;
}

inline double product(const std::vector<double>& x, int64_t p, int64_t k,
                      const std::vector<double>& y, int64_t q, int64_t l, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i * p + k] * y[i * q + l];
  return sum;
}

inline double norm(const std::vector<double>& x, int64_t p, int64_t k, int64_t n) {
  return std::sqrt(product(x, p, k, x, p, k, n));
}

// Checks the results of best_partners, x against y: grid [Lx, Ly], best and partner [neurons of x,
// Ly].
inline void check_partners(const std::vector<Layer>& x_layers, const std::vector<Layer>& y_layers,
                           const std::vector<double>& grid, const std::vector<double>& best,
                           const std::vector<int64_t>& partner, double tolerance) {
  const int64_t n = x_layers[0].n, count = int64_t(y_layers.size());
  int64_t row = 0;
  for (size_t a = 0; a < x_layers.size(); a++) {
    const int64_t p = x_layers[a].view.width;
    const std::vector<double> x = centred(x_layers[a]);
    std::vector<double> mean(count);
    for (int64_t k = 0; k < p; k++, row++)
      for (int64_t b = 0; b < count; b++) {
        const int64_t q = y_layers[b].view.width;
        const std::vector<double> y = centred(y_layers[b]);
        double most = -1;
        int64_t at = -1;
        for (int64_t l = 0; l < q; l++) {
          const double r =
              std::abs(product(x, p, k, y, q, l, n)) / norm(x, p, k, n) / norm(y, q, l, n);
          if (r > most) most = r, at = l;
        }
        CHECK_NEAR(best[row * count + b], most, tolerance);
        CHECK(partner[row * count + b] == at);
        mean[b] += most / double(p);
      }
    for (int64_t b = 0; b < count; b++) CHECK_NEAR(grid[a * count + b], mean[b], tolerance);
  }
}

}  // namespace naive
