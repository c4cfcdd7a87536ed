// Mean ranks by a radix sort of 30-bit keys, and a further sort of values whose keys are equal.
//
// Math      A value's key is its place between the least and the largest, in 2^30 steps: a
//           monotone map, so values of different keys are in order once their keys are.
// Plan      items = key << 31 | index; three passes of 10 bits, least significant first.
//           A run of equal keys is sorted by its values or, if the run is long, by keys of its own
//           between its least and largest value: three levels of keys tell apart all numbers that
//           float64 tells apart. One pass over the sorted items then closes a group wherever a
//           value exceeds its predecessor by more than `rounding`. Two keys at least two steps
//           apart prove this without reading the values, each of which would be a cache miss.
// Cost      per value 8 bytes read for the range, 16 read or written for the keys, 3 * 16 for the
//           passes, and 4 of its rank: 76 bytes, of which 28 are scattered writes. At 10 GB/s and
//           3 ns a scattered write (1024 streams of 64 bytes: L2), foreseen: 8 + 4 * 3 = 20 ns.
//           Passes of 11 bits took a third longer each, four of 8 bits as long in all.
// Numerics  ranks are exact whole numbers: the result does not depend on the order of equal ones.
// Twin      simcore/reference/rsa.py:ranks
#include "cpu/rsa/ranks.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace simcore::cpu {
namespace {

constexpr int kDigitBits = 10, kDigits = 3;
constexpr int64_t kBuckets = int64_t(1) << kDigitBits;
constexpr uint64_t kLargestKey = (uint64_t(1) << kDigitBits * kDigits) - 1;
constexpr uint64_t kIndexMask = (uint64_t(1) << kIndexBits) - 1;
static_assert(kDigitBits * kDigits + kIndexBits <= 64);
constexpr int64_t kShortRun = 256;  // below it, the counters of a radix sort cost more than sorting

// The map from the values between two bounds to keys.
struct Range {
  double least, scale;  // scale 0: all values are within rounding
  bool steps_exceed;    // one step exceeds rounding, however the keys were rounded

  Range(double least_, double largest, double rounding) : least(least_), scale(0) {
    const double width = largest - least;
    if (width > rounding) scale = double(kLargestKey) / width;
    if (!std::isfinite(scale)) scale = 0;
    steps_exceed = width > 2 * rounding * double(kLargestKey);
  }
  uint64_t key(double value) const { return uint64_t((value - least) * scale); }
};

struct Histograms {
  int32_t counts[kDigits][kBuckets] = {};

  void add(uint64_t key) {
    for (int d = 0; d < kDigits; d++) counts[d][(key >> d * kDigitBits) & (kBuckets - 1)]++;
  }
  // Turns the counts into the place of each bucket's first item.
  void to_places() {
    for (auto& digit : counts) {
      int32_t total = 0;
      for (int32_t& count : digit) total += std::exchange(count, total);
    }
  }
};

uint64_t key_of(uint64_t item) { return item >> kIndexBits; }

class Sorter {
 public:
  Sorter(const double* values, double rounding) : values_(values), rounding_(rounding) {}

  double value(uint64_t item) const { return values_[item & kIndexMask]; }

  // Sets items[0, count) to the indices 0 ... count - 1, sorted as `sort` does.
  Range sort_all(uint64_t* items, uint64_t* spare, int64_t count) const {
    return sort(items, spare, count, [](int64_t k) { return uint64_t(k); });
  }

  bool apart(uint64_t before, uint64_t item, const Range& range) const {
    if (range.steps_exceed && key_of(item) > key_of(before) + 1) return true;
    return value(item) - value(before) > rounding_;
  }

 private:
  // Sets items[0, count) to index(0) ... index(count - 1), sorted by value. A run of items that all
  // lie within `rounding` of each other is not sorted: its least item comes first and its largest
  // last. The keys belong to the returned range. `index` may read the items.
  template <typename Index>
  Range sort(uint64_t* items, uint64_t* spare, int64_t count, const Index& index) const {
    double least = values_[index(0)], largest = least;
    for (int64_t k = 1; k < count; k++) {
      const double x = values_[index(k)];
      least = std::min(least, x);
      largest = std::max(largest, x);
    }
    const Range range(least, largest, rounding_);
    if (range.scale == 0) {
      for (int64_t k = 0; k < count; k++) items[k] = index(k);
      order_ends(items, count);
      return range;
    }
    Histograms histograms;
    for (int64_t k = 0; k < count; k++) {
      const uint64_t i = index(k), key = range.key(values_[i]);
      spare[k] = key << kIndexBits | i;
      histograms.add(key);
    }
    sort_by_key(items, spare, count, histograms);
    return range;
  }

  void order_ends(uint64_t* items, int64_t count) const {
    const auto less = [&](uint64_t a, uint64_t b) { return value(a) < value(b); };
    std::swap(items[0], *std::min_element(items, items + count, less));
    std::swap(items[count - 1], *std::max_element(items, items + count, less));
  }

  // Sorts the items of `spare` into `items`.
  void sort_by_key(uint64_t* items, uint64_t* spare, int64_t count, Histograms& histograms) const {
    static_assert(kDigits % 2 == 1);  // the last pass ends in items
    histograms.to_places();
    uint64_t *from = spare, *to = items;
    for (int d = 0; d < kDigits; d++, std::swap(from, to)) {
      const int shift = kIndexBits + d * kDigitBits;
      int32_t* const places = histograms.counts[d];
      for (int64_t k = 0; k < count; k++)
        to[places[(from[k] >> shift) & (kBuckets - 1)]++] = from[k];
    }
    for (int64_t first = 0; first < count;) {
      int64_t last = first + 1;
      while (last < count && key_of(items[last]) == key_of(items[first])) last++;
      if (last - first > 1) sort_run(items + first, spare + first, last - first);
      first = last;
    }
  }

  // Sorts items of one key, and leaves that key in them.
  void sort_run(uint64_t* items, uint64_t* spare, int64_t count) const {
    if (count <= kShortRun) {
      std::sort(items, items + count, [&](uint64_t a, uint64_t b) { return value(a) < value(b); });
      return;
    }
    const uint64_t key = key_of(items[0]);
    sort(items, spare, count, [items](int64_t k) { return items[k] & kIndexMask; });
    for (int64_t k = 0; k < count; k++) items[k] = key << kIndexBits | (items[k] & kIndexMask);
  }

  const double* values_;
  double rounding_;
};

}  // namespace

void centred_ranks(const double* values, int64_t count, double rounding, uint64_t* items,
                   uint64_t* spare, int32_t* out) {
  if (count == 0) return;
  const Sorter sorter(values, rounding);
  const Range range = sorter.sort_all(items, spare, count);
  for (int64_t first = 0; first < count;) {
    int64_t last = first + 1;
    while (last < count && !sorter.apart(items[last - 1], items[last], range)) last++;
    // Twice the mean of ranks first + 1 ... last, less count + 1.
    const int32_t rank = int32_t(first + last - count);
    for (int64_t k = first; k < last; k++) out[items[k] & kIndexMask] = rank;
    first = last;
  }
}

}  // namespace simcore::cpu
