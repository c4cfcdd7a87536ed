// The RBF kernel's widths: exact order statistics of the squared distances of every layer.
//
// Plan      gram.cuh writes the distances of some layers, [layers][entries], and -1 where there is
//           no pair; plans decide whether they are kept (HsicPlan::keep_distances). Non-negative
//           floating-point numbers order as their bits do: each round of `histogram` and `pick_bin`
//           fixes the next kDigitBits bits of the wanted statistic, from the top. `next_value`
//           finds the next larger value, `finish_gamma` computes the width from both.
// Cost      one read of the distances for each of 3 digits, and one more.
// Numerics  exact, and integer atomics only: bit-equal on repetition.
// Twin      simcore/reference/hsic.py:rbf_width; the rule is core/math/rbf_math.h
#pragma once

#include <cmath>

#include "core/math/rbf_math.h"
#include "cuda/base/device_math.cuh"
#include "cuda/hsic/hsic.h"
#include "cuda/products/layers.cuh"

namespace simcore::cuda {

constexpr int kDigitBits = 11;
constexpr int kBins = 1 << kDigitBits;
constexpr int kSelectThreads = 256;
constexpr int64_t kSelectEntries = 1 << 13;  // entries that one block goes over

using Key = unsigned;

struct Selection {
  Key key;        // the bits fixed so far
  int64_t rank;   // of the wanted value among those that share them
  int64_t equal;  // how many share them
  Key next;       // the least key above
};

constexpr int kKeyBits = 32;
__device__ inline Key key_of(float x) { return __float_as_uint(x); }
__device__ inline double value_of(Key key) { return __uint_as_float(key); }

static __global__ void start_selection(int64_t rank, Selection* selections, int64_t count) {
  const int64_t l = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (l < count) selections[l] = {0, rank, 0, ~Key(0)};
}

// Bits [from, to) of a value. A round counts these bits among the values that agree with the
// statistic in the bits above.
struct Digit {
  int from, to;
};

// Calls f(key) for this block's share of the distances of its layer, four by four: entries are
// whole tiles.
template <typename F>
__device__ __forceinline__ void visit_keys(const float* distances, int64_t entries, F f) {
  const auto* values = reinterpret_cast<const float4*>(distances + blockIdx.y * entries);
  const int64_t stride = int64_t(gridDim.x) * kSelectThreads;
  int64_t k = int64_t(blockIdx.x) * kSelectThreads + threadIdx.x;
  for (; k < entries / 4; k += stride) {
    const float4 read = values[k];
    const float four[4] = {read.x, read.y, read.z, read.w};
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (four[e] >= 0) f(key_of(four[e]));
  }
}

// bins [layers][kBins]; blocks: shares of the entries, layers.
static __global__ void histogram(const float* distances, int64_t entries,
                                 const Selection* selections, Digit digit, unsigned* bins) {
  __shared__ unsigned counts[kBins];
  for (int b = int(threadIdx.x); b < kBins; b += kSelectThreads) counts[b] = 0;
  __syncthreads();
  const Key wanted = selections[blockIdx.y].key;
  const bool top = digit.to == kKeyBits;
  visit_keys(distances, entries, [&](Key key) {
    if (top || key >> digit.to == wanted >> digit.to)
      atomicAdd(&counts[(key >> digit.from) & ((Key(1) << (digit.to - digit.from)) - 1)], 1u);
  });
  __syncthreads();
  for (int b = int(threadIdx.x); b < kBins; b += kSelectThreads)
    if (counts[b] > 0) atomicAdd(&bins[blockIdx.y * kBins + b], counts[b]);
}

constexpr int kBinsOfThread = kBins / kSelectThreads;

// Finds the bin that holds the rank, and clears the bins for the next digit. A block per layer;
// each thread has a run of kBinsOfThread bins.
static __global__ void pick_bin(Digit digit, Selection* selections, unsigned* bins) {
  __shared__ int64_t before[kSelectThreads];
  unsigned* counts = bins + int64_t(blockIdx.x) * kBins + int64_t(threadIdx.x) * kBinsOfThread;
  unsigned own[kBinsOfThread];
  int64_t total = 0;
#pragma unroll
  for (int b = 0; b < kBinsOfThread; b++) {
    own[b] = counts[b];
    counts[b] = 0;
    total += own[b];
  }
  const Selection s = selections[blockIdx.x];
  before[threadIdx.x] = total;
  for (int step = 1; step < kSelectThreads; step *= 2) {  // sums over the threads up to each
    __syncthreads();
    const int64_t more = int(threadIdx.x) >= step ? before[threadIdx.x - step] : 0;
    __syncthreads();
    before[threadIdx.x] += more;
  }
  int64_t rank = s.rank - (before[threadIdx.x] - total);
  if (rank < 0 || rank >= total) return;  // in another thread's run
  int b = 0;
  for (; rank >= int64_t(own[b]); b++) rank -= own[b];
  const Key bin = Key(int(threadIdx.x) * kBinsOfThread + b);
  selections[blockIdx.x] = {s.key | bin << digit.from, rank, own[b], s.next};
}

// Blocks: shares of the entries, layers.
static __global__ void next_value(const float* distances, int64_t entries, Selection* selections) {
  const Key key = selections[blockIdx.y].key;
  Key least = ~Key(0);
  visit_keys(distances, entries, [&](Key other) {
    if (other > key && other < least) least = other;
  });
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const Key other = __shfl_xor_sync(~0u, least, step);
    least = other < least ? other : least;
  }
  if (lane_of_thread() == 0) atomicMin(&selections[blockIdx.y].next, least);
}

// A pair of float16 numbers holds an entry to 2^-25, whatever its size (packed entries are near 1).
// Rows whose median distance is less than this for an entry, root mean square, lie too close:
// 2^10 steps of 2^-25 leave the CKA of such rows an error of about 1e-6, and 2^4 steps one of 1e-3.
constexpr double kLeastSpread = 0x1p-15;

// unresolved [L]: kUnresolved where rows lie too close, else left as it is.
static __global__ void finish_gamma(const Selection* selections, const DeviceLayer* layers,
                                    int64_t count, MedianRule rule, double bandwidth,
                                    double largest, double* gammas, int64_t* unresolved) {
  const int64_t l = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (l >= count) return;
  const Selection s = selections[l];
  const double first = value_of(s.key);
  const bool same = s.rank + (rule.second - rule.first) < s.equal;
  const double second = same ? first : value_of(s.next);
  const double median = rule.halved ? second / 2 : (first + second) / 2;
  const double least = kLeastSpread * kLeastSpread * double(layers[l].view.width);
  // A median of 0, as equal rows have, gives results of nan anyway.
  const bool too_close = median > 0 && median < least;
  if (too_close && unresolved[l] == 0) unresolved[l] = kUnresolved;
  gammas[l] = too_close ? nan("") : rbf_gamma(median, bandwidth, largest);
}

}  // namespace simcore::cuda
