// The standardised rows of a layer, and the rounding error of the dissimilarities between them.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/base/layer.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

// c_i = z_i - mean of all z, where z_i is row i centred and of unit length. The dissimilarity of
// two rows is 1 - z_i'z_j = |c_i - c_j|^2 / 2.
struct StandardRows {
  std::vector<double> halves;  // [n] |c_i|^2 / 2; nan for a constant row, whose c_i is 0
  double mean_half = 0;        // mean of halves: the mean dissimilarity is 2n / (n - 1) times it
  double rounding = 0;         // the variance that rounding gives the dissimilarities
  int64_t nonfinite = 0;       // NaN or infinite entries; if any, the rest is undefined
};

// Row i of c goes to out[i / panel * panel * width + k * panel + i % panel]: panel 1 is row-major.
template <typename T>
StandardRows standardise_rows(const LayerView& layer, int64_t n, int64_t panel, T* out,
                              const Runtime& rt);

// Returns the bytes that standardise_rows allocates.
int64_t standardise_bytes(int64_t n, int64_t width, int threads);

}  // namespace simcore::cpu
