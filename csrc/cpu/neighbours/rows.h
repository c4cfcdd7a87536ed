// Rows of a layer as neighbours are defined by them: in float64 one by one, and all of them centred
// and packed for products in float32.
#pragma once

#include <cstdint>
#include <vector>

#include "core/views/layer_view.h"
#include "cpu/base/buffer.h"
#include "cpu/base/runtime.h"

namespace simcore::cpu {

enum class Metric : int { cosine = 0, euclidean = 1, inner = 2 };

// Row i is u_i = (x_i * scale[i]) * factor[i]: of unit length for `cosine` (or zero, where x_i is),
// else x_i times one power of two, 2^-exponent, that brings a float64 layer near 1.
struct Rows {
  LayerView layer{};
  int64_t n = 0;
  Metric metric = Metric::cosine;
  std::vector<double> scale, factor;  // [n]
  std::vector<double> squares;        // [n] |u_i|^2: 1 or 0 for `cosine`
  std::vector<double> mean;           // [width] of u
  int exponent = 0;
  double largest = 0;     // of |u_ik - u_0k|
  bool defined = false;   // rows differ; for `cosine`: their directions do, beyond rounding
  int64_t nonfinite = 0;  // NaN or infinite entries; if any, the rest is undefined

  void load(int64_t i, double* out) const;
  bool is_zero(int64_t i) const { return factor[i] == 0; }

  // Returns how far row j is from row i, given both as `load` gives them: the cosine distance (0
  // within rounding, 1 from or to a row of zeros), the squared distance or minus the inner product.
  double distance(int64_t i, const double* u_i, int64_t j, const double* u_j) const;

  // Returns the difference up to which a distance from row i to row j counts as equal to another
  // one: the rounding error of a sum of that many terms and, for `cosine`, of unit rows.
  double rounding(double distance, int64_t i, int64_t j) const;
};

Rows read_rows(const LayerView& layer, int64_t n, Metric metric, const Runtime& rt);

// Returns the bytes that a Rows takes, with what is taken while it is made.
int64_t rows_bytes(int64_t n, int64_t width, int threads);

// Rows c_i = (u_i - mean) * 2^-e in panels of float32 (isa.h), and what follows from them.
//
// Row j is the nearer to row i, the smaller its key bias[j] - c_i'c_j is:
//   euclidean, cosine   |u_i - u_j|^2 / 2 = key + |c_i|^2 / 2    bias |c_j|^2 / 2
//   inner               -u_i'u_j = key - m'c_i - |m|^2           bias -m'c_j      (units of 2^2e)
// A row of zeros is at cosine distance 1 from all others: its bias is half a unit more.
struct PackedRows {
  Buffer<float> panels;         // [round_to(n, unit) / width][width of the layer][width]
  std::vector<float> bias;      // [round_to(n, unit)], infinite beyond n
  std::vector<double> norms;    // [n] |c_i|
  std::vector<uint64_t> marks;  // [n] of the bits of u_i: equal rows have equal marks

  PackedRows(const Rows& rows, const Runtime& rt);
};

int64_t packed_bytes(int64_t n, int64_t width, int threads);

}  // namespace simcore::cpu
