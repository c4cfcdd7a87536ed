// hsic_terms on a CUDA device: the plan. tensor.cu has the products.
#include "cuda/hsic/hsic.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "cuda/hsic/run.cuh"
#include "cuda/products/product_tensor.cuh"

namespace simcore::cuda {

#define SIMCORE_ELSEWHERE(parts)                                                                 \
  extern template void run_hsic<TensorProduct<parts>>(const DeviceHsicProblem&, const HsicPlan&, \
                                                      void*, const HsicOutput&, cudaStream_t);
SIMCORE_ELSEWHERE(1)  // tensor.cu
SIMCORE_ELSEWHERE(2)
#undef SIMCORE_ELSEWHERE

namespace {

// Returns f(p) with p a null pointer to the type of the product.
template <typename F>
auto with_product(const DeviceHsicProblem& problem, F f) {
#if !defined( \
    __CUDACC__)  // emulated tensor cores are slow: the host run proves the sequence without
  if (problem.variant == Variant::plain) return f(static_cast<PlainProduct<float>*>(nullptr));
#endif
  if (problem.precision == Precision::pairs) return f(static_cast<TensorProduct<2>*>(nullptr));
  return f(static_cast<TensorProduct<1>*>(nullptr));
}

template <typename Rows>
int64_t bytes_of(const HsicSizes& sizes, const HsicPlan& plan) {
  return HsicBuffers<Rows>(sizes, plan, nullptr, nullptr).bytes;
}

// The size of a group: the Gram tiles of a group stay in half of L2 if there is room for
// kLeastCached. Otherwise all tiles are one group: packed rows are read again for every group,
// which costs more than to read Gram entries that left L2 once. The distances of the layers whose
// median is being found stay in half of L2, unless those of all layers are held anyway.
constexpr int64_t kLeastCached = 8;

template <typename Rows>
void plan_groups(HsicPlan& plan, const HsicSizes& s, const Device& device) {
  const int64_t tile_entries = plan.tile * plan.tile;
  const int64_t entry_bytes = Rows::kPlanes * int64_t(sizeof(typename Rows::Stored));
  const int64_t tiles = triangle_size(s.padded_n(plan.tile) / plan.tile);
  const int64_t cached = device.l2_bytes / 2 / (s.layers * tile_entries * entry_bytes);
  plan.group_tiles = cached < kLeastCached ? tiles : std::min(cached, tiles);
  if (!s.rbf()) return;
  if (plan.keep_distances) {
    plan.median_layers = s.layers;
    return;
  }
  const int64_t m = ceil_div(MedianRule(s.n).rows, plan.tile);
  const int64_t distances = triangle_size(m) * tile_entries;
  plan.median_layers = std::clamp<int64_t>(
      device.l2_bytes / 2 / (distances * int64_t(sizeof(typename Rows::Value))), 1, s.layers);
}

// Sets the shares: every multiprocessor has one block of the contraction, as far as the entries
// last.
template <typename Product>
void plan_shares(HsicPlan& plan, const HsicSizes& s, const Device& device) {
  const PairBlock pairs = s.symmetric() ? PairBlock{0, s.layers, 0, s.layers, true}
                                        : PairBlock{0, s.count_x, s.count_x, s.count_y, false};
  const int64_t entries = plan.group_tiles * plan.tile * plan.tile;
  const int64_t side = plan.narrow ? Product::Narrow::kTile : Product::kTile;
  plan.shares = std::clamp<int64_t>(device.multiprocessors / pairs.tiles(side), 1,
                                    std::min(entries / kPitchUnit, kMaxGridY));
}

// Up to this many layers a side, tiles of Product::Narrow do less than one of the product's.
constexpr int64_t kFewLayers = 64;

template <typename Product>
HsicPlan plan_of(const HsicSizes& s, const Device& device, int64_t max_memory) {
  HsicPlan plan;
  plan.tile = Product::kTile;
  plan.narrow = std::max(s.count_x, s.count_y) <= kFewLayers;
  plan.column_chunks = column_chunks(s.n, s.layers, s.widest, device);
  plan.block_rows = s.padded_n(plan.tile);
  // Entries of the kernel come from the distances that the median is taken over, where these are of
  // all pairs and where memory allows: no Gram matrix is then formed twice.
  plan.keep_distances = s.rbf() && MedianRule(s.n).step == 1;
  plan_groups<typename Product::Rows>(plan, s, device);
  while (true) {
    plan_shares<Product>(plan, s, device);
    plan.workspace_bytes = bytes_of<typename Product::Rows>(s, plan);
    if (plan.workspace_bytes <= max_memory) return plan;
    if (plan.keep_distances) {
      plan.keep_distances = false;
      plan_groups<typename Product::Rows>(plan, s, device);
    } else if (plan.group_tiles > kLeastCached)  // packing rows twice costs more than launches
      plan.group_tiles = ceil_div(plan.group_tiles, 2);
    else if (plan.block_rows > plan.tile)
      plan.block_rows = round_to(ceil_div(plan.block_rows, 2), plan.tile);
    else if (plan.group_tiles > 1 || plan.median_layers > 1) {
      plan.group_tiles = ceil_div(plan.group_tiles, 2);
      plan.median_layers = ceil_div(plan.median_layers, 2);
    } else
      throw std::invalid_argument(
          "max_memory: wanted at least " + std::to_string(plan.workspace_bytes) +
          " bytes for the smallest tiles, got " + std::to_string(max_memory));
  }
}

}  // namespace

HsicSizes::HsicSizes(const HsicProblem& problem)
    : n(problem.n),
      count_x(int64_t(problem.x.size())),
      count_y(int64_t(problem.y.size())),
      layers(count_x + count_y),
      columns(0),
      widest(0),
      pitches(0),
      widest_pitch(0),
      kernel(problem.kernel) {
  for (const auto* side : {&problem.x, &problem.y})
    for (const LayerView& layer : *side) {
      columns += layer.width;
      widest = std::max(widest, layer.width);
      pitches += round_to(layer.width, kPitchUnit);
    }
  widest_pitch = round_to(widest, kPitchUnit);
}

HsicPlan make_plan(const DeviceHsicProblem& problem, const Device& device, int64_t max_memory) {
  if (problem.in_float64())
    throw std::invalid_argument("X, Y: wanted layers of at most 32 bits, and a bandwidth below " +
                                std::to_string(int64_t(kFloat64Bandwidth)) +
                                ", for the kernels of a CUDA device");
  const HsicSizes s(problem);
  if (s.layers > kMaxGridY)
    throw std::invalid_argument("X, Y: wanted at most " + std::to_string(kMaxGridY) +
                                " layers in all on a CUDA device, got " + std::to_string(s.layers));
  return with_product(
      problem, [&]<typename Product>(Product*) { return plan_of<Product>(s, device, max_memory); });
}

void hsic_terms(const DeviceHsicProblem& problem, const HsicPlan& plan, void* workspace,
                const HsicOutput& output, cudaStream_t stream) {
  with_product(problem, [&]<typename Product>(Product*) {
    run_hsic<Product>(problem, plan, workspace, output, stream);
  });
}

}  // namespace simcore::cuda
