// All pairs of long rows: Gram entries of layers, weights of attention heads.
#pragma once

#include "core/math/index_math.h"
#include "cuda/products/product_plain.cuh"

namespace simcore::cuda {

// A block of pairs of rows: [row0, row0 + rows) with [column0, column0 + columns); where the two
// ranges are equal, only tiles on and above the diagonal.
struct PairBlock {
  int64_t row0, rows, column0, columns;
  bool triangle;

  SIMCORE_HD int64_t tiles(int64_t side) const {
    const int64_t across = ceil_div(columns, side);
    return triangle ? triangle_size(across) : ceil_div(rows, side) * across;
  }
  SIMCORE_HD Place place(int64_t tile, int64_t side) const {
    const int64_t across = ceil_div(columns, side);
    return triangle ? triangle_place(tile, across) : rectangle_place(tile, across);
  }
};

SIMCORE_HD constexpr int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// sums [shares][rows][columns] += the product of rows a and b of a panel, `entries` long. Blocks:
// tiles of pairs, shares of the entries in chunks of `chunk`, after which sums go to float64.
// registers: contract<TensorProduct: 255: a block of 256 threads; 128 are its two sets of sums
// registers: contract<NarrowProduct: 168: a block of 256 threads, which is what plans count on
// registers: contract<PlainProduct<float: 128: 4 blocks of 128 threads, as attention.cu plans
// registers: contract<PlainProduct<double: 168: 3 blocks of 128 threads
template <typename Product, typename P>
__global__ void __launch_bounds__(Product::kThreads, Product::kBlocks)
    contract(P rows, int64_t entries, int64_t chunk, PairBlock pairs, double* sums) {
  constexpr int64_t side = Product::kTile;
  const Place place = pairs.place(blockIdx.x, side);
  const int64_t a0 = place.row * side, b0 = place.column * side;
  const P a{rows.data + rows.offset(pairs.row0 + a0, 0), rows.pitch,
            at_most(side, pairs.rows - a0)};
  const P b{rows.data + rows.offset(pairs.column0 + b0, 0), rows.pitch,
            at_most(side, pairs.columns - b0)};
  for (int64_t k = blockIdx.y * chunk; k < entries; k += gridDim.y * chunk) {
    Product product;
    product.add(a, b, k, at_most(entries, k + chunk));
    // Found again for every chunk: kept, it takes registers that the product needs.
    const Place tile = pairs.place(blockIdx.x, side);
    const int64_t row = tile.row * side, column = tile.column * side;
    double* out = sums + (blockIdx.y * pairs.rows + row) * pairs.columns + column;
    const int64_t down = pairs.rows - row, across = pairs.columns - column;
    product.visit([&](int r, int c, const auto& values) {
#pragma unroll
      for (int e = 0; e < Product::kRun; e++)
        if (r < down && c + e < across)  // an addition that nobody waits for; one block owns it
          atomicAdd(&out[r * pairs.columns + c + e], double(values[e]));
    });
  }
}

}  // namespace simcore::cuda
