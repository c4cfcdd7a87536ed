// Covariance of a layer and its projection on directions, from any dtype.
//
// Math      C = Xc^T Xc, lower triangle; U = Xc D^T.
// Plan      C: for each kSlice examples, pack all columns once, then the tiles on and below the
//           diagonal. U: directions packed once; kRowBlock rows at a time against all of them.
// Cost      n p^2 and 2 n p k flops in micro-kernels. No float64 copy of the layer is made.
// Numerics  C in float64, U in T; one thread, so always the same order.
// Twin      simcore/reference/cca.py:svd
#include "cpu/spectral/covariance.h"

#include <algorithm>

#include "cpu/base/buffer.h"
#include "cpu/isa/isa.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kSlice = 256;  // examples of one product
constexpr int64_t kRowBlock = 48;

int64_t tile_side() { return kMaxPanels * isa_table<double>().width; }

}  // namespace

int64_t covariance_stride(int64_t p) { return round_to(p, tile_side()); }

void lower_covariance(const LayerView& layer, const Centring<double>& centring, int64_t n,
                      double* c) {
  const IsaTable<double>& isa = isa_table<double>();
  const int64_t p = layer.width, stride = covariance_stride(p), w = isa.width;
  Buffer<double> packed(stride * kSlice);
  alignas(64) double block[kMaxUnit * kMaxUnit];
  std::fill(c, c + stride * stride, 0.0);
  std::fill(packed.data(), packed.data() + stride * kSlice, 0.0);
  for (int64_t row = 0; row < n; row += kSlice) {
    const int64_t depth = std::min(kSlice, n - row);
    isa.pack_columns(layer, centring, row, depth, 0, p, packed.data(), w * kSlice);
    for (int64_t j = 0; j < p; j += tile_side())
      for (int64_t i = j; i < p; i += isa.mr) {
        isa.micro[kMaxPanels - 1](packed.data() + i / w * w * kSlice + i % w,
                                  packed.data() + j * kSlice, w * kSlice, depth, block, tile_side(),
                                  false);
        isa.add_block(block, isa.mr, tile_side(), c + i * stride + j, stride);
      }
  }
}

template <typename T>
void project(const LayerView& layer, const Centring<T>& centring, int64_t n, const T* directions,
             int64_t k, float* out, int64_t out_stride) {
  if (k == 0) return;
  const IsaTable<T>& isa = isa_table<T>();
  const int64_t p = layer.width, w = isa.width, unit = kMaxPanels * w, padded = round_to(k, unit);
  Buffer<T> right(padded * p), left(kRowBlock * p);
  for (int64_t j = 0; j < padded; j += w)
    isa.pack_plain(directions + std::min(j, k) * p, p, std::clamp<int64_t>(k - j, 0, w), p,
                   right.data() + j * p);
  alignas(64) T block[kRowBlock * kMaxUnit];  // [rows, unit]
  double norms[kMaxUnit];
  for (int64_t row = 0; row < n; row += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, n - row);
    for (int64_t i = 0; i < rows; i += w)
      isa.pack_rows(layer, centring, row + i, std::min(w, rows - i), left.data() + i * p, norms);
    for (int64_t j = 0; j < k; j += unit) {
      // Depth outside: a chunk of the directions stays in the first-level cache for all rows.
      for (int64_t d = 0; d < p; d += kSlice)
        for (int64_t i = 0; i < rows; i += isa.mr)
          // Row i is lane i % w of panel i / w. A panel is [p][w]: feature d begins at d * w.
          isa.micro[kMaxPanels - 1](left.data() + (i / w * p + d) * w + i % w,
                                    right.data() + j * p + d * w, w * p, std::min(kSlice, p - d),
                                    block + i * unit, unit, d > 0);
      for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < std::min(unit, k - j); c++)
          out[(row + i) * out_stride + j + c] = float(block[i * unit + c]);
    }
  }
}

template void project(const LayerView&, const Centring<float>&, int64_t, const float*, int64_t,
                      float*, int64_t);
template void project(const LayerView&, const Centring<double>&, int64_t, const double*, int64_t,
                      float*, int64_t);

}  // namespace simcore::cpu
