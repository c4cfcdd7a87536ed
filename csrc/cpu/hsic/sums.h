// The sums over example pairs of centred layers that both paths of HSIC compute.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/math/hsic_math.h"
#include "cpu/hsic/plan.h"
#include "cpu/products/grid.h"

namespace simcore::cpu {

// All sums belong to centred entries times 2^-exponent; the scale is not undone.
struct GridSums {
  std::vector<double> offdiag;  // [L, L], upper triangle of wanted pairs; sum_{i != j} K_ij L_ij
  std::vector<double> diag;     // [L, n] K_ii
  std::vector<double> rows;     // [L, n] sum_{j != i} K_ij; empty for the linear kernel (= -diag)
  std::vector<double> squares;  // [L, n] sum_{j != i} K_ij^2, if asked for
  std::vector<double> cubes;    // [L] sum_{i != j} K_ij^3, if asked for
};

// The constants of a kernel other than the linear one, for every layer.
struct KernelScale {
  KernelKind kind = KernelKind::rbf;
  std::vector<double> gammas;  // of rbf: 1 / (2 sigma^2); infinite where undefined
  std::vector<double> shifts;  // subtracted from every entry

  double diagonal() const { return kind == KernelKind::rbf ? 1 : 0; }  // of K, not shifted
  bool defined(int64_t layer) const { return gammas.empty() || std::isfinite(gammas[layer]); }
};

// The RBF kernel's widths; the shift is its value at the median distance.
template <typename T>
KernelScale median_bandwidths(const Grid<T>& grid, double bandwidth, const Runtime& rt);

template <typename T>
KernelScale distance_scale(const Grid<T>& grid) {
  KernelScale scale{KernelKind::distance, {}, {}};
  for (const Centring<T>& centring : grid.centring)
    scale.shifts.push_back(double(T(distance_shift(centring.squares, double(grid.n)))));
  return scale;
}

// scale: null for the linear kernel.
template <typename T>
GridSums gram_sums(const Grid<T>& grid, const KernelScale* scale, const HsicPlan& plan,
                   const Runtime& rt);

template <typename T>
GridSums feature_sums(const Grid<T>& grid, const HsicPlan& plan, const Runtime& rt);

}  // namespace simcore::cpu
