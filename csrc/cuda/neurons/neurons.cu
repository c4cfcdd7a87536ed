// best_partners and multiple_correlations on a CUDA device: the plan and the launch sequence.
//
// Math, cost and numerics: neurons.cuh. Twin: simcore/reference/neurons.py;
// csrc/cpu/neurons/neurons.cpp on the CPU.
#include "cuda/neurons/neurons.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/base/arena.h"
#include "cuda/neurons/neurons.cuh"
#include "cuda/neurons/pairs.h"
#include "cuda/products/layers_run.cuh"

namespace simcore::cuda {
namespace {

// Above this number of examples products are in float64: sums in float would lose digits.
constexpr int64_t kMostInFloat = 16384;
constexpr int64_t kLeastTile = PlainProduct<float>::kTile;

bool in_float64(const LayersProblem& problem) {
  return problem.n > kMostInFloat || problem.has_float64();
}

template <typename T>
struct NeuronBuffers {
  DeviceLayer* layers;
  Centring<T> centring;
  ColumnSums* column_sums;
  double* factors;
  TileSum* sums;
  T *left, *right;  // packed; the same buffer if all layers fit
  int64_t bytes;

  NeuronBuffers(const LayersProblem& problem, const Extent& extent, const NeuronPlan& plan,
                int64_t* nonfinite, void* workspace) {
    Arena arena(workspace);
    layers = arena.take<DeviceLayer>(extent.layers);
    centring.mean_hi = arena.take<T>(extent.columns);
    centring.mean_lo = arena.take<T>(extent.columns);
    centring.exponent = arena.take<int>(extent.layers);
    centring.nonfinite = nonfinite;
    factors = arena.take<double>(extent.columns);
    sums = arena.take<TileSum>(problem.rows() * ceil_div(extent.widest, kLeastTile) *
                               problem.columns());
    column_sums = arena.take<ColumnSums>(plan.column_chunks * extent.columns);
    left = arena.take<T>(plan.packed_bytes / int64_t(sizeof(T)));
    right = plan.together ? left : arena.take<T>(plan.packed_bytes / int64_t(sizeof(T)));
    bytes = arena.used();
  }
};

// Consecutive layers that are packed together: [first, last).
struct Group {
  int64_t first, last;
};

template <typename Product, bool best>
class NeuronRun {
 public:
  using T = typename Product::Value;
  static constexpr int64_t kSide = Product::kTile;

  NeuronRun(const LayersProblem& problem, const NeuronPlan& plan, void* workspace,
            const NeuronOutput& output, cudaStream_t stream)
      : problem_(problem),
        plan_(plan),
        output_(output),
        stream_(stream),
        table_(describe_layers(problem)),
        extent_(extent_of(table_)),
        buffers_(problem, extent_, plan, output.nonfinite, workspace),
        pitch_(packed_pitch(problem)),
        count_x_(int64_t(problem.x.size())),
        first_y_(problem.y.empty() ? 0 : count_x_),
        count_y_(int64_t(table_.size()) - first_y_),
        tiles_(ceil_div(extent_.widest, kSide)) {}

  void run() {
    centre();
    if (plan_.together) {
      const PackedLayers<PlainRows<T>> all = pack({0, extent_.layers}, buffers_.left);
      match({0, count_x_}, all, {first_y_, first_y_ + count_y_}, all);
    } else {
      for (Group a = next_group(0, count_x_); a.first < a.last; a = next_group(a.last, count_x_)) {
        const PackedLayers<PlainRows<T>> left = pack(a, buffers_.left);
        const int64_t end = first_y_ + count_y_;
        for (Group b = next_group(first_y_, end); b.first < b.last; b = next_group(b.last, end))
          match(a, left, b, pack(b, buffers_.right));
      }
    }
    launch("finish_matches", finish_matches<best>,
           {ceil_div(count_x_ * count_y_, kFinishMatchThreads)}, kFinishMatchThreads, stream_,
           buffers_.layers, count_x_, first_y_, count_y_, buffers_.sums, tiles_, kSide,
           buffers_.factors, output_.grid);
  }

 private:
  void centre() {
    store_table(table_, buffers_.layers, stream_);
    centre_layers(buffers_.layers, problem_.n, plan_.column_chunks, extent_, buffers_.column_sums,
                  buffers_.centring, stream_);
    launch("column_factors", column_factors,
           {ceil_div(extent_.widest, kFactorThreads), extent_.layers}, kFactorThreads, stream_,
           buffers_.layers, problem_.n, plan_.column_chunks, extent_.columns, buffers_.column_sums,
           buffers_.centring.exponent, buffers_.factors);
  }

  // Returns the layers from `first` on, and before `end`, that fit into a buffer.
  Group next_group(int64_t first, int64_t end) const {
    int64_t last = first, bytes = 0;
    while (last < end) {
      bytes += table_[size_t(last)].view.width * pitch_ * int64_t(sizeof(T));
      if (bytes > plan_.packed_bytes) break;
      last++;
    }
    return {first, last};
  }

  PackedLayers<PlainRows<T>> pack(Group group, T* buffer) {
    const PackedLayers<PlainRows<T>> packed{buffer, table_[size_t(group.first)].column, pitch_};
    // Orthonormal neurons of y keep their length: their products are added, not compared.
    const int64_t unscaled = best ? extent_.layers : count_x_;
    launch("pack_neurons", pack_neurons<PlainRows<T>>,
           {pitch_ / kSquare * ceil_div(extent_.widest, kSquare), group.last - group.first},
           kPackNeuronThreads, stream_, buffers_.layers, group.first, unscaled, problem_.n,
           pitch_ / kSquare, buffers_.centring, buffers_.factors, packed);
    return packed;
  }

  void match(Group a, const PackedLayers<PlainRows<T>>& left, Group b,
             const PackedLayers<PlainRows<T>>& right) {
    const MatchArguments<T> arguments{buffers_.layers, a.first,          b.first,
                                      first_y_,        count_y_,         left,
                                      right,           buffers_.factors, buffers_.centring.exponent,
                                      buffers_.sums,   tiles_,           output_.best,
                                      output_.partner};
    launch("match_neurons", match_neurons<Product, best>,
           {tiles_, b.last - b.first, a.last - a.first}, Product::kThreads, stream_, arguments);
  }

  const LayersProblem& problem_;
  const NeuronPlan& plan_;
  const NeuronOutput& output_;
  cudaStream_t stream_;
  std::vector<DeviceLayer> table_;
  Extent extent_;
  NeuronBuffers<T> buffers_;
  int64_t pitch_, count_x_, first_y_, count_y_, tiles_;
};

template <bool best>
void run(const LayersProblem& problem, const NeuronPlan& plan, void* workspace,
         const NeuronOutput& output, cudaStream_t stream) {
  if (plan.float64)
    NeuronRun<PlainProduct<double>, best>(problem, plan, workspace, output, stream).run();
  else
    NeuronRun<PlainProduct<float>, best>(problem, plan, workspace, output, stream).run();
}

int64_t bytes_for(const LayersProblem& problem, const Extent& extent, const NeuronPlan& plan) {
  return plan.float64 ? NeuronBuffers<double>(problem, extent, plan, nullptr, nullptr).bytes
                      : NeuronBuffers<float>(problem, extent, plan, nullptr, nullptr).bytes;
}

}  // namespace

NeuronPlan make_plan(const LayersProblem& problem, const Device& device, int64_t max_memory,
                     Variant variant) {
  const Extent extent = extent_of(describe_layers(problem));
  if (extent.layers > kMaxGridY)
    throw std::invalid_argument("X, Y: wanted at most " + std::to_string(kMaxGridY) +
                                " layers in all on a CUDA device, got " +
                                std::to_string(extent.layers));
  NeuronPlan plan;
  plan.float64 = in_float64(problem);
  plan.column_chunks = column_chunks(problem.n, extent.layers, extent.widest, device);
  if (variant == Variant::tensor && !plan.float64) {
    plan.pairs = true;
    plan.workspace_bytes = bytes_by_pairs(problem, extent, plan);
    if (plan.workspace_bytes != kMoreThanAGrid && plan.workspace_bytes <= max_memory) return plan;
    plan.pairs = false;
  }
  const int64_t row = packed_pitch(problem) * (plan.float64 ? 8 : 4);
  plan.together = true;
  plan.packed_bytes = extent.columns * row;
  plan.workspace_bytes = bytes_for(problem, extent, plan);
  if (plan.workspace_bytes <= max_memory) return plan;
  plan.together = false;
  plan.packed_bytes = 0;
  const int64_t fixed = bytes_for(problem, extent, plan);
  const int64_t least = extent.widest * row;
  plan.packed_bytes = std::max(least, ((max_memory - fixed) / 2 - 256) / row * row);
  plan.workspace_bytes = bytes_for(problem, extent, plan);
  if (plan.workspace_bytes > max_memory)
    throw std::invalid_argument("max_memory: wanted at least " +
                                std::to_string(plan.workspace_bytes) +
                                " bytes for two layers, got " + std::to_string(max_memory));
  return plan;
}

void best_partners(const LayersProblem& problem, const NeuronPlan& plan, void* workspace,
                   const NeuronOutput& output, cudaStream_t stream) {
  if (plan.pairs)
    best_partners_by_pairs(problem, plan, workspace, output, stream);
  else
    run<true>(problem, plan, workspace, output, stream);
}

void multiple_correlations(const LayersProblem& problem, const NeuronPlan& plan, void* workspace,
                           const NeuronOutput& output, cudaStream_t stream) {
  run<false>(problem, plan, workspace, output, stream);
}

}  // namespace simcore::cuda
