// hsic_terms on a CUDA device: the plan, and the plain products.
#include "cuda/hsic/hsic.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "cuda/hsic/run.cuh"
#include "cuda/products/product_tensor.cuh"

namespace simcore::cuda {

#define SIMCORE_ELSEWHERE(parts)                                                                 \
  extern template void run_hsic<TensorProduct<parts>>(const DeviceHsicProblem&, const HsicPlan&, \
                                                      void*, const HsicOutput&, cudaStream_t);
SIMCORE_ELSEWHERE(1)  // tensor.cu
SIMCORE_ELSEWHERE(2)
SIMCORE_ELSEWHERE(3)
#undef SIMCORE_ELSEWHERE

namespace {

bool in_float64(const HsicProblem& problem) {
  const bool wide = problem.kernel == KernelKind::rbf && problem.bandwidth >= kFloat64Bandwidth;
  return wide || problem.has_float64();
}

// Returns f(p) with p a null pointer to the type of the product.
template <typename F>
auto with_product(const DeviceHsicProblem& problem, bool float64, F f) {
  if (float64) return f(static_cast<PlainProduct<double>*>(nullptr));
  if (problem.variant == Variant::plain) return f(static_cast<PlainProduct<float>*>(nullptr));
  if (problem.precision == Precision::highest) return f(static_cast<TensorProduct<3>*>(nullptr));
  if (problem.precision == Precision::high) return f(static_cast<TensorProduct<2>*>(nullptr));
  return f(static_cast<TensorProduct<1>*>(nullptr));
}

template <typename Rows>
int64_t bytes_of(const HsicSizes& sizes, const HsicPlan& plan) {
  return HsicBuffers<Rows>(sizes, plan, nullptr, nullptr).bytes;
}

// Tiles of a group that do not fit into L2: every launch then has enough blocks for the whole
// device, and what spills is read once.
constexpr int64_t kLeastGroup = 8;

// The size of a group: the Gram tiles of a group, and the distances of the layers whose median is
// being found, stay in half of L2; but a group has kLeastGroup tiles.
template <typename Rows>
void plan_groups(HsicPlan& plan, const HsicSizes& s, const Device& device) {
  const int64_t tile_entries = plan.tile * plan.tile;
  const int64_t entry_bytes = Rows::kPlanes * int64_t(sizeof(typename Rows::Stored));
  const int64_t tiles = triangle_size(s.padded_n(plan.tile) / plan.tile);
  const int64_t cached = device.l2_bytes / 2 / (s.layers * tile_entries * entry_bytes);
  plan.group_tiles = std::min(std::max(cached, kLeastGroup), tiles);
  if (!s.rbf()) return;
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
  plan.float64 = std::is_same_v<typename Product::Value, double>;
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
    if (plan.keep_distances)
      plan.keep_distances = false;
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
  const HsicSizes s(problem);
  if (s.layers > kMaxGridY)
    throw std::invalid_argument("X, Y: wanted at most " + std::to_string(kMaxGridY) +
                                " layers in all on a CUDA device, got " + std::to_string(s.layers));
  return with_product(problem, in_float64(problem), [&]<typename Product>(Product*) {
    return plan_of<Product>(s, device, max_memory);
  });
}

void hsic_terms(const DeviceHsicProblem& problem, const HsicPlan& plan, void* workspace,
                const HsicOutput& output, cudaStream_t stream) {
  with_product(problem, plan.float64, [&]<typename Product>(Product*) {
    run_hsic<Product>(problem, plan, workspace, output, stream);
  });
}

}  // namespace simcore::cuda
