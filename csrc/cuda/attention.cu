// Similarity of attention heads: sums over all pairs of heads of all layers at once.
//
// Math      core/attention_math.h. Every measure adds up one number per pair of heads and weight,
//           so a head is one long row, as in csrc/cpu/attention.cpp.
// Shapes    heads of x, then of y: N in all; a chunk of rows is packed as [N, entries] in T, zeros
//           at its end. A chunk never spans sentences for frobenius, whose root ends a sentence.
// Plan      pack_heads      a warp per row of a head: converted, renormalised (causal), halved (js:
//                           F of the mixture is then F(p + q)) or centred and scaled (pearson);
//                           weights that have no similarity are counted
//           contract        a block per (tile of pairs of heads, share of the entries): the product
//                           of product_plain.cuh with the measure's term
//           self_terms      js, x against y: F of every single head
//           close_sentence  frobenius: roots
//           head_similarities, layer_grid
//           A chunk stays in half of L2 between pack_heads and contract.
// Cost      N^2 / 2 * sum_s t_s^2 terms; js: one logarithm each, the rate of the special function
//           units. Causal zeros are not skipped.
// Numerics  sums of kTermDepth terms go to float64, in a fixed order. JSD as a difference of
//           entropies has an absolute error near 2e-7 in float32 (of the logarithm's 22 bits);
//           equal heads give exactly 1, because F(a) and F(m) come from the same instructions in
//           the same order.
// Twin      simcore/reference/attention.py; csrc/cpu/attention.cpp on the CPU
#include "cuda/attention.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <stdexcept>
#include <string>

#include "cuda/arena.h"
#include "cuda/contract.cuh"

namespace simcore::cuda {
namespace {

constexpr int kPackThreads = 256;
constexpr int kPackWarps = kPackThreads / kWarp;
constexpr int kGridThreads = 128;
constexpr int64_t kTermDepth = 128;
// Blocks of contract per multiprocessor: logarithms take long, others should go on meanwhile.
constexpr int64_t kBlocksPerMultiprocessor = 4;
constexpr double kLn2 = 0.6931471805599453;
// Centred rows below this length count as constant: one repeated value may leave rounding errors.
constexpr double kConstantRow = 1e-12;

__device__ __forceinline__ float log2_of(float x) { return __log2f(x > FLT_MIN ? x : FLT_MIN); }
__device__ __forceinline__ double log2_of(double x) { return log2(x > DBL_MIN ? x : DBL_MIN); }

// m log2 m of a mixture from two halves; 0 for 0.
struct Mixture {
  template <typename T>
  __device__ static __forceinline__ T add(T sum, T x, T y) {
    const T m = x + y;
    return fma(m, log2_of(m), sum);
  }
};

struct SquaredDifference {
  template <typename T>
  __device__ static __forceinline__ T add(T sum, T x, T y) {
    return fma(x - y, x - y, sum);
  }
};

struct PackedChunk {
  int64_t first_row, rows;
  int64_t offset;   // of the first row
  int64_t entries;  // a whole number of kDepth
};

// A row of weights and how it is packed: (x * factor - mean) * scale where it counts.
struct RowScale {
  double factor, mean, scale;
};

__device__ __forceinline__ RowScale scale_of(AttentionMeasure measure, bool causal, double total,
                                             int64_t length) {
  RowScale s{1, 0, measure == AttentionMeasure::js ? 0.5 : 1.0};
  if (causal) s.factor = total > 0 ? 1 / total : 0;
  if (measure == AttentionMeasure::pearson) s.mean = total * s.factor / double(length);
  return s;
}

// Blocks: kPackWarps rows of the chunk, heads.
template <typename T>
__global__ void __launch_bounds__(kPackThreads)
    pack_heads(const __grid_constant__ DeviceTables tables, int64_t sentences,
               const __grid_constant__ PackedChunk chunk, AttentionMeasure measure, bool causal,
               T* packed, unsigned long long* bad) {
  const int64_t r = int64_t(blockIdx.x) * kPackWarps + warp_of_thread();
  if (r >= chunk.rows) return;
  const AttentionRow row = tables.rows[chunk.first_row + r];
  const AttentionHead head = tables.heads[blockIdx.y];
  const AttentionView view = tables.views[head.layer * sentences + row.sentence];
  const int64_t base = head.index * view.head_stride + row.word * view.row_stride;
  const int64_t counted = causal ? row.word + 1 : row.length;
  const int lane = lane_of_thread();

  double total = 0;
  unsigned nonfinite = 0, negative = 0;
#pragma unroll 1
  for (int64_t k = lane; k < counted; k += kWarp) {
    const double x = load<double>(view.data, view.dtype, base + k * view.col_stride);
    total += x;
    nonfinite += !isfinite(x);
    negative += x < 0;
  }
  total = warp_sum(total);
  nonfinite = warp_sum(nonfinite);
  negative = warp_sum(negative);
  if (lane == 0 && nonfinite > 0) atomicAdd(&bad[2 * head.layer], (unsigned long long)nonfinite);
  if (lane == 0 && negative > 0) atomicAdd(&bad[2 * head.layer + 1], (unsigned long long)negative);

  RowScale s = scale_of(measure, causal, total, row.length);
  if (measure == AttentionMeasure::pearson) {
    double square = 0;
#pragma unroll 1
    for (int64_t k = lane; k < row.length; k += kWarp) {
      const double x =
          k < counted ? load<double>(view.data, view.dtype, base + k * view.col_stride) : 0;
      const double d = x * s.factor - s.mean;
      square += d * d;
    }
    square = sqrt(warp_sum(square));
    s.scale = square > kConstantRow ? 1 / square : 0;
  }
  T* out = packed + blockIdx.y * chunk.entries + row.offset - chunk.offset;
#pragma unroll 1
  for (int64_t k = lane; k < row.length; k += kWarp) {
    const double x =
        k < counted ? load<double>(view.data, view.dtype, base + k * view.col_stride) : 0;
    out[k] = T((x * s.factor - s.mean) * s.scale);
  }
  if (r != chunk.rows - 1) return;
  T* const end = packed + (blockIdx.y + 1) * chunk.entries;
  for (T* rest = out + row.length + lane; rest < end; rest += kWarp) *rest = T(0);
}

// sums [shares][heads] += the term of every head with itself, in the order in which contract adds
// that of a pair. Blocks: kSelfHeads heads, shares; kSelfHeads threads.
constexpr int kSelfHeads = 64, kSelfDepth = 32;

template <typename T, typename Term>
__global__ void self_terms(const T* packed, int64_t heads, int64_t entries, int64_t chunk,
                           double* sums) {
  __shared__ T staged[kSelfDepth][kSelfHeads + 1];
  const int64_t first = int64_t(blockIdx.x) * kSelfHeads, me = first + threadIdx.x;
  double total = 0;
  for (int64_t k = blockIdx.y * chunk; k < entries; k += gridDim.y * chunk) {
    T sum = 0;
    for (int64_t d0 = k; d0 < at_most(entries, k + chunk); d0 += kSelfDepth) {
      for (int h = warp_of_thread(); h < kSelfHeads; h += kSelfHeads / kWarp)
        staged[lane_of_thread()][h] =
            first + h < heads ? packed[(first + h) * entries + d0 + lane_of_thread()] : T(0);
      __syncthreads();
      for (int d = 0; d < kSelfDepth; d++)
        sum = Term::add(sum, staged[d][threadIdx.x], staged[d][threadIdx.x]);
      __syncthreads();
    }
    total += double(sum);
  }
  if (me < heads) sums[blockIdx.y * heads + me] += total;
}

// roots += the root of the sentence's sums, which start again from 0.
static __global__ void close_sentence(double* sums, int64_t shares, int64_t pairs, double* roots) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  double square = 0;
  for (int64_t s = 0; s < shares; s++) {
    square += sums[s * pairs + i];
    sums[s * pairs + i] = 0;
  }
  roots[i] += sqrt(square);
}

struct PairSums {
  const double* pairs;   // [shares][rows][columns]
  const double* selves;  // js, x against y: [shares][heads]
  int64_t shares;
  int64_t rows, columns;
  bool symmetric;
  AttentionMeasure measure;
  double unit;   // of the sums
  double count;  // words or sentences

  __device__ double pair(int64_t h, int64_t g) const {
    double sum = 0;
#pragma unroll 1
    for (int64_t s = 0; s < shares; s++) sum += pairs[(s * rows + h) * columns + g];
    return sum * unit;
  }
  __device__ double self(int64_t head) const {
    double sum = 0;
#pragma unroll 1
    for (int64_t s = 0; s < shares; s++) sum += selves[s * (rows + columns) + head];
    return sum * unit;
  }
  // h: a head of the rows, g: of the columns.
  __device__ double similarity(int64_t h, int64_t g) const {
    const bool swap = symmetric && g < h;  // only tiles on and above the diagonal were summed
    HeadSums s{swap ? pair(g, h) : pair(h, g), 0, 0};
    if (measure == AttentionMeasure::js) {
      s.self_a = symmetric ? pair(h, h) : self(h);
      s.self_b = symmetric ? pair(g, g) : self(rows + g);
    }
    return head_similarity(measure, s, count);
  }
};

// A thread per pair of heads: similarities [rows][columns].
static __global__ void __launch_bounds__(kPackThreads)
    head_similarities(const __grid_constant__ PairSums sums, double* similarities) {
  const int64_t i = int64_t(blockIdx.x) * kPackThreads + threadIdx.x;
  if (i >= sums.rows * sums.columns) return;
  const Place place = rectangle_place(i, sums.columns);
  similarities[i] = sums.similarity(place.row, place.column);
}

// Blocks: pairs of layers, row by row. Layers of the columns start at first_y, their heads at
// first_column.
static __global__ void __launch_bounds__(kGridThreads)
    layer_grid(const double* similarities, int64_t head_columns, const int64_t* first_head,
               int64_t columns, int64_t first_y, int64_t first_column, double* grid) {
  __shared__ double partial[kGridThreads];
  const Place place = rectangle_place(blockIdx.x, columns);
  const int64_t h0 = first_head[place.row], h1 = first_head[place.row + 1];
  const int64_t* of_y = first_head + first_y + place.column;
  double total = 0;
  for (int64_t h = h0 + threadIdx.x; h < h1; h += kGridThreads) {
    double best = -INFINITY;
    for (int64_t g = of_y[0] - first_column; g < of_y[1] - first_column; g++) {
      const double value = similarities[h * head_columns + g];
      if (!(value <= best)) best = value;  // NaN wins
    }
    total += best;
  }
  partial[threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = 0;
  for (int t = 0; t < kGridThreads; t++) sum += partial[t];
  grid[blockIdx.x] = sum / double(h1 - h0);
}

bool in_float64(const AttentionProblem& problem) {
  for (const auto* side : {&problem.x, &problem.y})
    for (const AttentionLayer& layer : *side)
      for (const AttentionView& view : layer)
        if (view.dtype == DType::f64) return true;
  return false;
}

struct AttentionSizes {
  int64_t count_x, count_y, rows, heads;  // layers; heads of the result's rows, all heads
  bool symmetric, by_sentence, selves;

  AttentionSizes(const AttentionProblem& problem, const AttentionTables& tables)
      : count_x(int64_t(problem.x.size())),
        count_y(int64_t(problem.y.size())),
        rows(tables.first_head[problem.x.size()]),
        heads(int64_t(tables.heads.size())),
        symmetric(problem.y.empty()),
        by_sentence(problem.measure == AttentionMeasure::frobenius),
        selves(problem.measure == AttentionMeasure::js && !problem.y.empty()) {}
  PairBlock pairs() const {
    return symmetric ? PairBlock{0, heads, 0, heads, true}
                     : PairBlock{0, rows, rows, heads - rows, false};
  }
};

template <typename T>
struct AttentionBuffers {
  T* packed;             // [heads][entries]
  double* sums;          // [shares][rows][columns]
  double* roots;         // frobenius: [rows][columns]
  double* similarities;  // [rows][columns]
  double* selves;
  int64_t bytes;

  AttentionBuffers(const AttentionSizes& s, const AttentionPlan& plan, void* workspace) {
    Arena arena(workspace);
    const PairBlock pairs = s.pairs();
    sums = arena.take<double>(plan.shares * pairs.rows * pairs.columns);
    roots = s.by_sentence ? arena.take<double>(pairs.rows * pairs.columns) : nullptr;
    similarities = arena.take<double>(pairs.rows * pairs.columns);
    selves = s.selves ? arena.take<double>(plan.shares * s.heads) : nullptr;
    packed = arena.take<T>(s.heads * plan.entries);
    bytes = arena.used();
  }
};

template <typename T>
class AttentionRun {
 public:
  AttentionRun(const AttentionProblem& problem, const AttentionTables& tables,
               const DeviceTables& on_device, const AttentionPlan& plan, void* workspace,
               const AttentionOutput& output, cudaStream_t stream)
      : problem_(problem),
        tables_(tables),
        on_device_(on_device),
        plan_(plan),
        sizes_(problem, tables),
        output_(output),
        stream_(stream),
        buffers_(sizes_, plan, workspace),
        pairs_(sizes_.pairs()) {}

  void run() {
    clear(buffers_.sums, plan_.shares * pairs_.rows * pairs_.columns, stream_);
    if (sizes_.by_sentence) clear(buffers_.roots, pairs_.rows * pairs_.columns, stream_);
    if (sizes_.selves) clear(buffers_.selves, plan_.shares * sizes_.heads, stream_);
    clear(output_.bad, 2 * (sizes_.count_x + sizes_.count_y), stream_);
    const int64_t rows = int64_t(tables_.rows.size());
    for (int64_t row = 0; row < rows;) {
      const PackedChunk chunk = next_chunk(row);
      row += chunk.rows;
      pack(chunk);
      add(chunk);
      if (sizes_.by_sentence && ends_sentence(row))
        launch("close_sentence", close_sentence,
               {ceil_div(pairs_.rows * pairs_.columns, kPackThreads)}, kPackThreads, stream_,
               buffers_.sums, plan_.shares, pairs_.rows * pairs_.columns, buffers_.roots);
    }
    finish();
  }

 private:
  bool ends_sentence(int64_t row) const {
    return row == int64_t(tables_.rows.size()) || tables_.rows[size_t(row)].word == 0;
  }

  PackedChunk next_chunk(int64_t first) const {
    const int64_t offset = tables_.rows[size_t(first)].offset;
    int64_t end = first, entries = 0;
    do {
      const AttentionRow& row = tables_.rows[size_t(end)];
      if (row.offset + row.length - offset > plan_.entries) break;
      entries = row.offset + row.length - offset;
      end++;
    } while (!ends_sentence(end) || (!sizes_.by_sentence && end < int64_t(tables_.rows.size())));
    return {first, end - first, offset, round_to(entries, PlainProduct<T>::kDepth)};
  }

  void pack(const PackedChunk& chunk) {
    launch("pack_heads", pack_heads<T>, {ceil_div(chunk.rows, kPackWarps), sizes_.heads},
           kPackThreads, stream_, on_device_, int64_t(problem_.x[0].size()), chunk,
           problem_.measure, problem_.causal, buffers_.packed, output_.bad);
  }

  template <typename Term>
  void contract_with(const PackedChunk& chunk) {
    using Product = PlainProduct<T, Term>;
    launch("contract", contract<Product>, {pairs_.tiles(Product::kTile), shares(chunk)},
           Product::kThreads, stream_, buffers_.packed, chunk.entries, kTermDepth, pairs_,
           buffers_.sums);
  }
  int64_t shares(const PackedChunk& chunk) const {
    return at_most(plan_.shares, ceil_div(chunk.entries, kTermDepth));
  }

  void add(const PackedChunk& chunk) {
    if (problem_.measure == AttentionMeasure::js) contract_with<Mixture>(chunk);
    if (problem_.measure == AttentionMeasure::pearson) contract_with<Multiply>(chunk);
    if (problem_.measure == AttentionMeasure::frobenius) contract_with<SquaredDifference>(chunk);
    if (sizes_.selves)
      launch("self_terms", self_terms<T, Mixture>,
             {ceil_div(sizes_.heads, kSelfHeads), shares(chunk)}, kSelfHeads, stream_,
             buffers_.packed, sizes_.heads, chunk.entries, kTermDepth, buffers_.selves);
  }

  void finish() {
    const bool roots = sizes_.by_sentence;
    const PairSums sums{roots ? buffers_.roots : buffers_.sums,
                        buffers_.selves,
                        roots ? 1 : plan_.shares,
                        pairs_.rows,
                        pairs_.columns,
                        sizes_.symmetric,
                        problem_.measure,
                        problem_.measure == AttentionMeasure::js ? kLn2 : 1.0,
                        double(roots ? problem_.x[0].size() : tables_.rows.size())};
    const int64_t columns = sizes_.symmetric ? sizes_.count_x : sizes_.count_y;
    launch("head_similarities", head_similarities,
           {ceil_div(pairs_.rows * pairs_.columns, kPackThreads)}, kPackThreads, stream_, sums,
           buffers_.similarities);
    launch("layer_grid", layer_grid, {sizes_.count_x * columns}, kGridThreads, stream_,
           buffers_.similarities, pairs_.columns, on_device_.first_head, columns,
           sizes_.symmetric ? int64_t(0) : sizes_.count_x, pairs_.column0, output_.grid);
  }

  const AttentionProblem& problem_;
  const AttentionTables& tables_;
  const DeviceTables& on_device_;
  const AttentionPlan& plan_;
  AttentionSizes sizes_;
  const AttentionOutput& output_;
  cudaStream_t stream_;
  AttentionBuffers<T> buffers_;
  PairBlock pairs_;
};

int64_t bytes_for(const AttentionSizes& sizes, const AttentionPlan& plan) {
  return plan.float64 ? AttentionBuffers<double>(sizes, plan, nullptr).bytes
                      : AttentionBuffers<float>(sizes, plan, nullptr).bytes;
}

}  // namespace

AttentionTables::AttentionTables(const AttentionProblem& problem) {
  int64_t layer = 0, offset = 0;
  for (const auto* side : {&problem.x, &problem.y})
    for (const AttentionLayer& sentences : *side) {
      views.insert(views.end(), sentences.begin(), sentences.end());
      first_head.push_back(int64_t(heads.size()));
      for (int64_t h = 0; h < sentences[0].heads; h++) heads.push_back({layer, h});
      layer++;
    }
  first_head.push_back(int64_t(heads.size()));
  for (int64_t s = 0; s < int64_t(problem.x[0].size()); s++) {
    const int64_t words = problem.x[0][size_t(s)].words;
    for (int64_t i = 0; i < words; i++, offset += words) rows.push_back({s, i, words, offset});
  }
}

AttentionPlan make_plan(const AttentionProblem& problem, const AttentionTables& tables,
                        const Device& device) {
  const AttentionSizes sizes(problem, tables);
  if (sizes.heads > kMaxGridY)
    throw std::invalid_argument("A, B: wanted at most " + std::to_string(kMaxGridY) +
                                " heads in all on a CUDA device, got " +
                                std::to_string(sizes.heads));
  constexpr int64_t depth = PlainProduct<float>::kDepth;
  AttentionPlan plan;
  plan.float64 = in_float64(problem);
  int64_t longest = 0;
  for (const AttentionRow& row : tables.rows) longest = std::max(longest, row.length);
  const AttentionRow& last = tables.rows.back();
  const int64_t entry = sizes.heads * (plan.float64 ? 8 : 4);
  const int64_t least = round_to(longest, depth);
  plan.entries = std::clamp(device.l2_bytes / 2 / entry / depth * depth, least,
                            std::max(least, round_to(last.offset + last.length, depth)));
  const int64_t tiles = sizes.pairs().tiles(PlainProduct<float>::kTile);
  plan.shares = std::clamp<int64_t>(kBlocksPerMultiprocessor * device.multiprocessors / tiles, 1,
                                    std::min(ceil_div(plan.entries, kTermDepth), kMaxGridY));
  while ((plan.workspace_bytes = bytes_for(sizes, plan)) > problem.max_memory) {
    if (plan.shares > 1)
      plan.shares = ceil_div(plan.shares, 2);
    else if (plan.entries > least)
      plan.entries = std::max(least, plan.entries / 2 / depth * depth);
    else
      throw std::invalid_argument(
          "max_memory: wanted at least " + std::to_string(plan.workspace_bytes) +
          " bytes for one row of every head, got " + std::to_string(problem.max_memory));
  }
  return plan;
}

void attention_similarity(const AttentionProblem& problem, const AttentionTables& tables,
                          const DeviceTables& on_device, const AttentionPlan& plan, void* workspace,
                          const AttentionOutput& output, cudaStream_t stream) {
  if (plan.float64)
    AttentionRun<double>(problem, tables, on_device, plan, workspace, output, stream).run();
  else
    AttentionRun<float>(problem, tables, on_device, plan, workspace, output, stream).run();
}

}  // namespace simcore::cuda
