// Similarity of attention heads: sums over all pairs of heads of all layers at once.
//
// Math      core/math/attention_math.h. Every measure adds up one number per pair of heads and
//           weight, so a head is one long row, as in csrc/cpu/attention/attention.cpp.
// Shapes    heads of x, then of y: N in all; a chunk of rows is packed as [N, entries] in T, zeros
//           at its end. A chunk never spans sentences for frobenius, whose root ends a sentence.
// Plan      pack_heads      a warp per row of a head: converted, renormalised (causal), halved (js:
//                           F of the mixture is then F(p + q)); weights that have no similarity are
//                           counted, and rows that do not sum to 1
//           contract        a block per (tile of pairs of heads, share of the entries): the product
//                           of product_plain.cuh with the measure's term
//           self_terms      js, x against y: F of every single head
//           close_sentence  frobenius: roots
//           head_similarities, layer_grid
//           A chunk stays in half of L2 between pack_heads and contract.
// Cost      N^2 / 2 * sum_s t_s^2 terms; js: one logarithm each, the rate of the special function
//           units. Causal zeros are not skipped.
// Numerics  sums of kTermDepth terms go to float64, in a fixed order. JSD as a difference of
//           entropies has an absolute error, in float32 the logarithm's; equal heads give exactly
//           1, because F(a) and F(m) come from the same instructions in the same order.
// Twin      simcore/reference/attention.py; csrc/cpu/attention/attention.cpp on the CPU
#pragma once

#include <cfloat>
#include <cmath>

#include "cuda/attention/attention.h"
#include "cuda/products/contract.cuh"

namespace simcore::cuda {

constexpr int kPackThreads = 256;
constexpr int kPackWarps = kPackThreads / kWarp;
constexpr int kGridThreads = 128;

// One instruction: the clamp leaves no denormal number for __log2f to scale. Of 12 layers on an
// H100, predicted: 17 to 20 ms, and 33 with it.
__device__ __forceinline__ float log2_of(float x) {
  x = fmaxf(x, FLT_MIN);
#ifdef __CUDA_ARCH__
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return __log2f(x);
#endif
}
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
  int64_t first_sentence, end_sentence;
  int64_t offset;   // of the first row
  int64_t entries;  // a whole number of kDepth
};

// The last sentence from `first` on, and before `end`, that does not begin after a row.
__device__ __forceinline__ int64_t sentence_of(const AttentionSentence* sentences, int64_t row,
                                               int64_t first, int64_t end) {
  while (end - first > 1) {
    const int64_t middle = first + (end - first) / 2;
    (sentences[middle].first_row <= row ? first : end) = middle;
  }
  return first;
}

// Blocks: kPackWarps rows of the chunk, heads.
template <typename T>
__global__ void __launch_bounds__(kPackThreads)
    pack_heads(const __grid_constant__ DeviceTables tables, int64_t sentences,
               const __grid_constant__ PackedChunk chunk, AttentionMeasure measure, bool causal,
               T* packed, unsigned long long* bad) {
  const int64_t r = int64_t(blockIdx.x) * kPackWarps + warp_of_thread();
  if (r >= chunk.rows) return;
  const int64_t row = chunk.first_row + r;
  const int64_t at = sentence_of(tables.sentences, row, chunk.first_sentence, chunk.end_sentence);
  const AttentionSentence sentence = tables.sentences[at];
  const AttentionHead head = tables.heads[blockIdx.y];
  const AttentionView view = tables.views[head.layer * sentences + at];
  const int64_t word = row - sentence.first_row, words = sentence.words;
  const int64_t base = head.index * view.head_stride + word * view.row_stride;
  const int64_t counted = causal ? word + 1 : words;
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
  unsigned long long* counts = bad + kBadCounts * head.layer;
  if (lane == 0 && nonfinite > 0) atomicAdd(&counts[0], (unsigned long long)nonfinite);
  if (lane == 0 && negative > 0) atomicAdd(&counts[1], (unsigned long long)negative);
  if (lane == 0 && takes_distributions(measure, causal) && fabs(total - 1) > kRowSum)
    atomicAdd(&counts[2], 1ull);

  const double scale = (measure == AttentionMeasure::js ? 0.5 : 1.0) * (!causal     ? 1
                                                                        : total > 0 ? 1 / total
                                                                                    : 0);
  T* out = packed + blockIdx.y * chunk.entries + sentence.offset_of(row) - chunk.offset;
#pragma unroll 1
  for (int64_t k = lane; k < words; k += kWarp) {
    const double x =
        k < counted ? load<double>(view.data, view.dtype, base + k * view.col_stride) : 0;
    out[k] = T(x * scale);
  }
  if (r != chunk.rows - 1) return;
  T* const end = packed + (blockIdx.y + 1) * chunk.entries;
  for (T* rest = out + words + lane; rest < end; rest += kWarp) *rest = T(0);
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

struct HeadPairSums {
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
    head_similarities(const __grid_constant__ HeadPairSums sums, double* similarities) {
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

}  // namespace simcore::cuda
