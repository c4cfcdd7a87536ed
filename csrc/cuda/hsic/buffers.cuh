// The buffers of one hsic_terms call in the workspace.
#pragma once

#include "cuda/hsic/finish.cuh"
#include "cuda/hsic/median.cuh"
#include "cuda/hsic/plan.h"

namespace simcore::cuda {

template <typename Rows>
struct HsicBuffers {
  using T = typename Rows::Value;
  using Stored = typename Rows::Stored;
  DeviceLayer* layers;
  Centring centring;
  double *norms, *row_sums;  // [L][pitch]; row_sums null for the linear kernel
  double *gammas, *shifts;   // [L]; of the RBF kernel and of distances, else null
  double *sums, *self_sums;  // [shares][La][Lb], [kSelfShares][L]
  ColumnSums* column_sums;
  Stored *rows, *columns;  // packed; columns == rows where all examples are packed at once
  Stored* gram;
  // The median's, before rows, columns and gram are needed; if all distances are kept, beside them
  // and without rows of their own:
  Stored* median_rows;
  T* distances;  // [layers][entries]
  double* median_norms;
  Selection* selections;
  unsigned* bins;
  int64_t bytes;

  HsicBuffers(const HsicSizes& s, const HsicPlan& plan, int64_t* nonfinite, void* workspace) {
    Arena arena(workspace);
    const int64_t tile = plan.tile, pitch = s.padded_n(tile);
    layers = arena.take<DeviceLayer>(s.layers);
    centring.mean_hi = arena.take<float>(s.columns);
    centring.mean_lo = arena.take<float>(s.columns);
    centring.exponent = arena.take<int>(s.layers);
    centring.nonfinite = nonfinite;
    norms = arena.take<double>(s.layers * pitch);
    row_sums = s.linear() ? nullptr : arena.take<double>(s.layers * pitch);
    gammas = s.rbf() ? arena.take<double>(s.layers) : nullptr;
    shifts = s.kernel == KernelKind::distance ? arena.take<double>(s.layers) : nullptr;
    centring.squares = shifts;
    const int64_t pairs = s.symmetric() ? s.layers * s.layers : s.count_x * s.count_y;
    sums = arena.take<double>(plan.shares * pairs);
    self_sums = s.symmetric() ? nullptr : arena.take<double>(kSelfShares * s.layers);

    const int64_t mark = arena.used();
    column_sums = arena.take<ColumnSums>(plan.column_chunks * s.columns);
    bytes = arena.used();
    if (s.rbf() && !plan.keep_distances) {
      arena.rewind(mark);
      const int64_t m = round_to(MedianRule(s.n).rows, tile);
      median_rows = arena.take<Stored>(Rows::kPlanes * plan.median_layers * m * s.widest_pitch);
      median_norms = arena.take<double>(plan.median_layers * m);
      distances = arena.take<T>(plan.median_layers * triangle_size(m / tile) * tile * tile);
      selections = arena.take<Selection>(plan.median_layers);
      bins = arena.take<unsigned>(plan.median_layers * kBins);
      bytes = arena.used() > bytes ? arena.used() : bytes;
    }
    arena.rewind(mark);
    const int64_t packed = Rows::kPlanes * plan.block_rows * s.pitches;
    rows = arena.take<Stored>(packed);
    columns = plan.block_rows >= s.n ? rows : arena.take<Stored>(packed);
    gram = arena.take<Stored>(Rows::kPlanes * s.layers * plan.group_tiles * tile * tile);
    if (plan.keep_distances) {
      distances = arena.take<T>(s.layers * triangle_size(pitch / tile) * tile * tile);
      selections = arena.take<Selection>(plan.median_layers);
      bins = arena.take<unsigned>(plan.median_layers * kBins);
    }
    bytes = arena.used() > bytes ? arena.used() : bytes;
  }
};

}  // namespace simcore::cuda
