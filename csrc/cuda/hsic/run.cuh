// The launch sequence of hsic_terms for one kind of product.
#pragma once

#include <limits>
#include <vector>

#include "cuda/hsic/buffers.cuh"
#include "cuda/products/layers_run.cuh"

namespace simcore::cuda {

template <typename Product>
class HsicRun {
 public:
  using Rows = typename Product::Rows;
  using T = typename Product::Value;
  static constexpr DynamicShared kShared{Product::kSharedBytes};
  static constexpr int64_t kSide = Product::kTile;

  HsicRun(const DeviceHsicProblem& problem, const HsicPlan& plan, void* workspace,
          const HsicOutput& output, cudaStream_t stream)
      : problem_(problem),
        plan_(plan),
        sizes_(problem),
        output_(output),
        stream_(stream),
        buffers_(sizes_, plan, output.nonfinite, workspace),
        table_(describe_layers(problem)),
        pitch_(sizes_.padded_n(plan.tile)) {
    const int64_t x = sizes_.count_x;
    pairs_ = sizes_.symmetric() ? PairBlock{0, x, 0, x, true}
                                : PairBlock{0, x, x, sizes_.count_y, false};
    shift_ = sizes_.rbf() ? rbf_shift(problem.bandwidth) : 0;
  }

  void run() {
    centre();
    clear(buffers_.sums, plan_.shares * pairs_.rows * pairs_.columns, stream_);
    if (!sizes_.symmetric()) clear(buffers_.self_sums, kSelfShares * sizes_.layers, stream_);
    if (!sizes_.linear()) clear(buffers_.row_sums, sizes_.layers * pitch_, stream_);
    if (sizes_.rbf()) {
      if (plan_.keep_distances) pack(0, buffers_.rows);
      find_widths();
    }
    for (int64_t i0 = 0; i0 < sizes_.n; i0 += plan_.block_rows) {
      const int64_t rows = plan_.keep_distances ? pitch_ : pack(i0, buffers_.rows);
      for (int64_t j0 = i0; j0 < sizes_.n; j0 += plan_.block_rows) {
        const int64_t columns = j0 == i0 ? rows : pack(j0, buffers_.columns);
        const TileBlock block{i0, j0, rows, columns, j0 == i0};
        for (int64_t t = 0; t < block.tiles(kSide); t += plan_.group_tiles)
          group(block, t, at_most(plan_.group_tiles, block.tiles(kSide) - t));
      }
    }
    finish();
  }

 private:
  void centre() {
    store_table(table_, buffers_.layers, stream_);
    centre_layers(buffers_.layers, sizes_.n, plan_.column_chunks, extent_of(table_),
                  buffers_.column_sums, buffers_.centring, stream_);
    if (buffers_.shifts != nullptr)
      launch("squares_to_shifts", squares_to_shifts<T>, {ceil_div(sizes_.layers, kSumThreads)},
             kSumThreads, stream_, buffers_.shifts, sizes_.layers, sizes_.n);
  }

  Centring centring_from(int64_t layer) const {
    Centring centring = buffers_.centring;
    centring.exponent += layer;
    return centring;
  }

  // Packs rows of all layers from example `first` on; returns the number of rows, padding included.
  int64_t pack(int64_t first, typename Rows::Stored* packed) {
    const int64_t valid = at_most(plan_.block_rows, sizes_.n - first);
    const PackedRows which{first, 1, valid, round_to(valid, kSide)};
    launch("pack_rows", pack_rows<Rows>,
           {ceil_div(which.rows, kPackThreads / kWarp), sizes_.layers}, kPackThreads, stream_,
           buffers_.layers, buffers_.centring, which, int64_t(0), packed, buffers_.norms, pitch_);
    return which.rows;
  }

  // Finds the RBF widths of all layers, some layers at a time.
  void find_widths() {
    const MedianRule rule(sizes_.n);
    const int64_t rows = round_to(rule.rows, kSide);
    const TileBlock block{0, 0, rows, rows, true};
    const int64_t tiles = block.tiles(kSide), entries = tiles * kSide * kSide;
    for (int64_t l = 0; l < sizes_.layers; l += plan_.median_layers) {
      const int64_t count = at_most(plan_.median_layers, sizes_.layers - l);
      const bool kept = plan_.keep_distances;
      if (!kept) pack_for_median(rule, l, count, rows);
      const auto* packed = kept ? buffers_.rows : buffers_.median_rows;
      const GramArguments<Rows> g{buffers_.layers + l,
                                  kept ? 0 : table_[size_t(l)].packed_column,
                                  rule.rows,
                                  block,
                                  0,
                                  packed,
                                  packed,
                                  kept ? buffers_.norms + l * pitch_ : buffers_.median_norms,
                                  rows,
                                  nullptr,
                                  T(0)};
      T* distances = buffers_.distances + (kept ? l * entries : 0);
      launch("gram_tiles", gram_tiles<Product, Entry::squared>, {tiles, count}, Product::kThreads,
             stream_, kShared, g, distances);
      select(rule, distances, entries, l, count);
    }
  }

  // Packs the rows of layers [first, first + count) that the median is taken over.
  void pack_for_median(const MedianRule& rule, int64_t first, int64_t count, int64_t rows) {
    launch("pack_rows", pack_rows<Rows>, {ceil_div(rows, kPackThreads / kWarp), count},
           kPackThreads, stream_, buffers_.layers + first, centring_from(first),
           PackedRows{0, rule.step, rule.rows, rows}, table_[size_t(first)].packed_column,
           buffers_.median_rows, buffers_.median_norms, rows);
  }

  // Finds the widths of layers [first, first + count) from their distances.
  void select(const MedianRule& rule, const T* distances, int64_t entries, int64_t first,
              int64_t count) {
    const LaunchGrid shares{ceil_div(entries, kSelectEntries), count};
    const LaunchGrid per_layer{ceil_div(count, kSelectThreads)};
    launch("start_selection", start_selection, per_layer, kSelectThreads, stream_, rule.first,
           buffers_.selections, count);
    clear(buffers_.bins, count * kBins, stream_);
    for (int to = kKeyBits; to > 0; to -= kDigitBits) {
      const Digit digit{to > kDigitBits ? to - kDigitBits : 0, to};
      launch("histogram", histogram, shares, kSelectThreads, stream_, distances, entries,
             buffers_.selections, digit, buffers_.bins);
      launch("pick_bin", pick_bin, {count}, kSelectThreads, stream_, digit, buffers_.selections,
             buffers_.bins);
    }
    launch("next_value", next_value, shares, kSelectThreads, stream_, distances, entries,
           buffers_.selections);
    launch("finish_gamma", finish_gamma, per_layer, kSelectThreads, stream_, buffers_.selections,
           buffers_.layers + first, count, rule, problem_.bandwidth,
           double(std::numeric_limits<float>::max()), buffers_.gammas + first,
           output_.nonfinite + first);
  }

  // Computes tiles [first, first + tiles) of a block: the Grams of all layers, then all sums over
  // them.
  void group(const TileBlock& block, int64_t first, int64_t tiles) {
    const int64_t entries = tiles * kSide * kSide;
    if (plan_.keep_distances)
      launch("rbf_entries", rbf_entries<Product>,
             {ceil_div(entries, kRbfThreads * kRbfRuns * Product::kRun), sizes_.layers},
             kRbfThreads, stream_, buffers_.distances, block.tiles(kSide) * kSide * kSide,
             first * kSide * kSide, entries, buffers_.gammas, T(shift_), buffers_.gram);
    else
      gram(block, first, tiles);
    if (plan_.narrow)
      contract_entries<typename Product::Narrow>(entries);
    else
      contract_entries<Product>(entries);
    if (!sizes_.symmetric())
      launch("add_self_sums", add_self_sums<Rows>, {kSelfShares, sizes_.layers}, kSumThreads,
             stream_, buffers_.gram, entries, buffers_.self_sums);
    if (!sizes_.linear())
      launch("add_row_sums", add_row_sums<Rows, int(kSide)>, {pitch_ / kSide, sizes_.layers},
             int(kSide), stream_, buffers_.gram, block, first, tiles, buffers_.row_sums, pitch_);
  }

  void gram(const TileBlock& block, int64_t first, int64_t tiles) {
    const GramArguments<Rows> g{buffers_.layers,
                                0,
                                sizes_.n,
                                block,
                                first,
                                buffers_.rows,
                                block.diagonal ? buffers_.rows : buffers_.columns,
                                buffers_.norms,
                                pitch_,
                                buffers_.gammas,
                                T(shift_),
                                buffers_.shifts};
    const auto kernel = sizes_.rbf()      ? gram_tiles<Product, Entry::rbf>
                        : sizes_.linear() ? gram_tiles<Product, Entry::linear>
                                          : gram_tiles<Product, Entry::distance>;
    launch("gram_tiles", kernel, {tiles, sizes_.layers}, Product::kThreads, stream_, kShared, g,
           buffers_.gram);
  }

  template <typename Contraction>
  void contract_entries(int64_t entries) {
    const int64_t share = round_to(ceil_div(entries, plan_.shares), Contraction::kDepth);
    const int64_t chunk = at_most(Contraction::kChunk, share);
    using Grams = UnitPanel<Rows>;
    launch("contract", contract<Contraction, Grams>,
           {pairs_.tiles(Contraction::kTile), at_most(plan_.shares, ceil_div(entries, chunk))},
           Contraction::kThreads, stream_, DynamicShared{Contraction::kSharedBytes},
           Grams{buffers_.gram, sizes_.layers}, entries, chunk, pairs_, buffers_.sums);
  }

  void finish() {
    const HsicSums sums{buffers_.sums, buffers_.self_sums, plan_.shares, kSelfShares,
                        buffers_.norms, buffers_.row_sums, pitch_, sizes_.n, sizes_.layers,
                        buffers_.gammas,
                        // the shift as rounded in the Gram entries
                        double(T(shift_)), buffers_.shifts, buffers_.centring.exponent,
                        problem_.kernel, problem_.estimator};
    const int64_t count =
        pairs_.triangle ? triangle_size(pairs_.rows) : pairs_.rows * pairs_.columns;
    launch("finish_pairs", finish_pairs, {ceil_div(count, kFinishThreads / kWarp)}, kFinishThreads,
           stream_, sums, pairs_, output_.xy);
    launch("finish_selves", finish_selves, {ceil_div(sizes_.layers, kFinishThreads / kWarp)},
           kFinishThreads, stream_, sums, pairs_, sizes_.count_x, output_.xx, output_.yy);
  }

  const DeviceHsicProblem& problem_;
  const HsicPlan& plan_;
  HsicSizes sizes_;
  const HsicOutput& output_;
  cudaStream_t stream_;
  HsicBuffers<Rows> buffers_;
  std::vector<DeviceLayer> table_;
  int64_t pitch_;  // of norms and row sums
  PairBlock pairs_{};
  double shift_ = 0;
};

// Instantiated by one .cu file for each product, since all their kernels come with it.
template <typename Product>
void run_hsic(const DeviceHsicProblem& problem, const HsicPlan& plan, void* workspace,
              const HsicOutput& output, cudaStream_t stream) {
  HsicRun<Product>(problem, plan, workspace, output, stream).run();
}

}  // namespace simcore::cuda
