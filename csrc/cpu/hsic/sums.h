// The sums over example pairs of centred layers that both paths of HSIC compute.
#pragma once

#include <cstdint>
#include <vector>

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

// gammas[l] = 1 / (2 sigma_l^2); shift = the kernel's value at the median distance.
struct RbfScale {
  std::vector<double> gammas;
  double shift = 0;
};

template <typename T>
RbfScale median_bandwidths(const Grid<T>& grid, double bandwidth, const Runtime& rt);

// rbf: null for the linear kernel.
template <typename T>
GridSums gram_sums(const Grid<T>& grid, const RbfScale* rbf, const HsicPlan& plan,
                   const Runtime& rt);

template <typename T>
GridSums feature_sums(const Grid<T>& grid, const HsicPlan& plan, const Runtime& rt);

}  // namespace simcore::cpu
