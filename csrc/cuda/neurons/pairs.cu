// The launch sequence of best_partners on tensor cores.
#include "cuda/neurons/pairs.h"

#include "cuda/base/arena.h"
#include "cuda/neurons/pairs.cuh"

namespace simcore::cuda {
namespace {

using Product = TensorProduct<3>;

struct PairBuffers {
  DeviceLayer* layers;
  Centring<float> centring;
  ColumnSums* column_sums;
  double* factors;
  PartnerKey* keys;
  Product::Stored* packed;
  int64_t bytes;

  PairBuffers(const LayersProblem& problem, const Extent& extent, const NeuronPlan& plan,
              int64_t* nonfinite, void* workspace) {
    Arena arena(workspace);
    layers = arena.take<DeviceLayer>(extent.layers);
    centring.mean_hi = arena.take<float>(extent.columns);
    centring.mean_lo = arena.take<float>(extent.columns);
    centring.exponent = arena.take<int>(extent.layers);
    centring.nonfinite = nonfinite;
    factors = arena.take<double>(extent.columns);
    column_sums = arena.take<ColumnSums>(plan.column_chunks * extent.columns);
    keys = arena.take<PartnerKey>(problem.columns() * total_width(problem.x));
    packed = arena.take<Product::Stored>(Product::Rows::kPlanes * extent.columns *
                                         packed_pitch(problem));
    bytes = arena.used();
  }
};

LayerPairs pairs_of(const LayersProblem& problem) {
  const bool symmetric = problem.y.empty();
  return {problem.rows(), problem.columns(), symmetric ? 0 : problem.rows(), symmetric};
}

int64_t tiles_of(const Extent& extent) { return ceil_div(extent.widest, int64_t(Product::kTile)); }

}  // namespace

int64_t bytes_by_pairs(const LayersProblem& problem, const Extent& extent, const NeuronPlan& plan) {
  const int64_t tiles = tiles_of(extent);
  if (pairs_of(problem).count() > kMaxGridX / (tiles * tiles)) return kMoreThanAGrid;
  return PairBuffers(problem, extent, plan, nullptr, nullptr).bytes;
}

void best_partners_by_pairs(const LayersProblem& problem, const NeuronPlan& plan, void* workspace,
                            const NeuronOutput& output, cudaStream_t stream) {
  const std::vector<DeviceLayer> table = describe_layers(problem);
  const Extent extent = extent_of(table);
  const PairBuffers buffers(problem, extent, plan, output.nonfinite, workspace);
  const int64_t pitch = packed_pitch(problem), neurons = total_width(problem.x);
  const LayerPairs pairs = pairs_of(problem);
  const PackedLayers<Product::Rows> packed{buffers.packed, 0, pitch};
  store_table(table, buffers.layers, stream);
  centre_layers(buffers.layers, problem.n, plan.column_chunks, extent, buffers.column_sums,
                buffers.centring, stream);
  launch("column_factors", column_factors, {ceil_div(extent.widest, kFactorThreads), extent.layers},
         kFactorThreads, stream, buffers.layers, problem.n, plan.column_chunks, extent.columns,
         buffers.column_sums, buffers.centring.exponent, buffers.factors);
  launch("pack_neurons", pack_neurons<Product::Rows>,
         {pitch / kSquare * ceil_div(extent.widest, kSquare), extent.layers}, kPackNeuronThreads,
         stream, buffers.layers, int64_t(0), extent.layers, problem.n, pitch / kSquare,
         buffers.centring, buffers.factors, packed);
  clear(buffers.keys, pairs.columns * neurons, stream);
  const int64_t tiles = tiles_of(extent);
  const PairArguments<Product> arguments{buffers.layers, pairs,   packed, buffers.factors,
                                         buffers.keys,   neurons, tiles};
  launch("match_pairs", match_pairs<Product>, {pairs.count() * tiles * tiles}, Product::kThreads,
         stream, DynamicShared{Product::kSharedBytes}, arguments);
  launch("finish_partners", finish_partners, {pairs.rows * pairs.columns}, kFinishPairThreads,
         stream, buffers.layers, pairs, buffers.factors, buffers.keys, neurons, output.grid,
         output.best, output.partner);
}

}  // namespace simcore::cuda
