// The k nearest rows of every row of a layer.
//
// Math      key_i(j) = b_j - c_i'c_j orders the rows j by their distance from row i (rows.h). Those
//           that could be among the k nearest, given the rounding of keys, are compared by their
//           distances in float64.
// Shapes    a layer [n, p] at a time; tiles of kTaskRows rows by kTaskRows columns, j > i alone.
// Plan      pack the layer; one task per tile: a group of columns at a time (one micro-kernel call
//           wide), and its products while they are in cache. Each product serves two rows: j may be
//           near i, and i near j. The candidates of a block of rows are behind a lock. Then rows in
//           parallel: float64 distances of the candidates, sorted. Where no distances are asked
//           for, keys decide wherever they differ by more than their rounding, and float64
//           distances order the rest.
// Cost      n^2 p flops a layer; per product two comparisons, and a candidate pushed k (1 + ln(n /
//           k)) times a row. n k p terms in float64. 13 layers of [1600, 768], k = 10, on one core
//           at 60 Gflop/s: products .43 s; foreseen beside them: packing .05, comparisons .03,
//           candidates .05, float64 .04 s. No n x n matrix.
// Numerics  a key is off by at most kSafety sqrt(p) + ... units (slack below), a multiple of the
//           standard error of a sum of p products; so the result is that of float64 arithmetic,
//           and the same whatever the threads, the tiles and the instruction set, up to rows whose
//           distances float64 rounds differently. Where too many rows are within that error (more
//           than Shortlists keeps), all n distances of the row are computed in float64.
// Twin      simcore/reference/neighbours.py:neighbour_lists, distances
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "core/math/index_math.h"
#include "core/math/nan.h"
#include "cpu/base/memory.h"
#include "cpu/isa/isa.h"
#include "cpu/isa/neighbours_table.h"
#include "cpu/neighbours/neighbours.h"
#include "cpu/neighbours/shortlists.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kDepth = 1024;     // of one product over features
constexpr int64_t kResultRows = 16;  // rows of a task that computes distances in float64
constexpr double kUnit = 0x1p-24;    // the rounding error of float32
constexpr double kSafety = 4;        // standard errors, and more, of a sum of rounded products

// Twice the rounding error of keys of row i, given the k-th smallest one.
class Slack {
 public:
  Slack(const PackedRows& packed, const Rows& rows)
      : norms_(packed.norms),
        by_norm_(rows.metric != Metric::inner),
        products_(kSafety * std::sqrt(double(rows.layer.width)) + 8) {
    for (int64_t i = 0; i < rows.n; i++) {
      longest_ = std::max(longest_, norms_[i]);
      bias_ = std::max(bias_, std::abs(double(packed.bias[i])));
    }
  }

  double operator()(int64_t i, double tau) const {
    const double norm = norms_[i];
    if (!by_norm_) return 2 * kUnit * (products_ * norm * longest_ + 2 * bias_);
    // Rows as near as the k-th are at most this long.
    const double length = norm + std::sqrt(std::max(0.0, 2 * tau + norm * norm));
    return 2 * kUnit * (products_ * norm * length + length * length);
  }

 private:
  const std::vector<double>& norms_;
  bool by_norm_;
  double products_, longest_ = 0, bias_ = 0;
};

class NearestRows {
 public:
  NearestRows(const Rows& rows, int64_t k, const Runtime& rt)
      : rows_(rows),
        k_(k),
        rt_(rt),
        isa_(isa_table<float>()),
        unit_(kMaxPanels * isa_.width),
        packed_(rows, rt),
        slack_(packed_, rows),
        lists_(packed_.marks, k, int64_t(packed_.bias.size())),
        blocks_(ceil_div(rows.n, kTaskRows)),
        locks_(std::make_unique<std::mutex[]>(blocks_)) {}

  void search() {
    parallel_tasks(rt_, triangle_size(blocks_), [&](int64_t task, int) {
      const Place tile = triangle_place(task, blocks_);
      compare(tile.row, tile.column);
    });
  }

  // Writes [n, k] results; values and own are wanted, or both are null.
  void write(int32_t* index, double* values, double* own) {
    parallel_tasks(rt_, ceil_div(rows_.n, kResultRows), [&](int64_t task, int) {
      Ranking ranking(rows_);
      const int64_t end = std::min((task + 1) * kResultRows, rows_.n);
      for (int64_t i = task * kResultRows; i < end; i++) {
        rank(i, ranking, values);
        for (int64_t t = 0; t < k_; t++) index[i * k_ + t] = ranking.found[t].index;
        if (!values) continue;
        own[i] = std::ldexp(rows_.squares[i], 2 * rows_.exponent);
        for (int64_t t = 0; t < k_; t++)
          values[i * k_ + t] = ranking.value(ranking.found[t].distance);
      }
    });
  }

 private:
  struct Found {
    double distance;
    int32_t index;
  };

  // Distances in float64 from one row to others: what the order goes by, the smallest first.
  struct Ranking {
    const Rows& rows;
    int64_t i = 0;
    std::vector<double> from, to;
    std::vector<Found> found;

    explicit Ranking(const Rows& rows_)
        : rows(rows_), from(rows_.layer.width), to(rows_.layer.width) {}

    void start(int64_t row) {
      i = row;
      rows.load(i, from.data());
      found.clear();
    }

    void add(int64_t j) {
      rows.load(j, to.data());
      found.push_back({rows.distance(i, from.data(), j, to.data()), int32_t(j)});
    }

    // Sorts what was found from place `begin` on by distance; of distances that are equal up to
    // rounding the lower index comes first.
    void sort(int64_t begin = 0) {
      std::sort(found.begin() + begin, found.end(), [](const Found& a, const Found& b) {
        return a.distance < b.distance || (a.distance == b.distance && a.index < b.index);
      });
      for (auto first = found.begin() + begin; first < found.end();) {
        auto last = first + 1;
        while (last < found.end() &&
               last->distance - last[-1].distance <= rows.rounding(last->distance, i, last->index))
          last++;
        std::sort(first, last, [](const Found& a, const Found& b) { return a.index < b.index; });
        first = last;
      }
    }

    // What the result says of a distance.
    double value(double distance) const {
      if (rows.metric == Metric::inner) return std::ldexp(-distance, 2 * rows.exponent);
      if (rows.metric == Metric::euclidean) return std::ldexp(std::sqrt(distance), rows.exponent);
      return distance;
    }
  };

  // Finds the k nearest rows of row i, with their distances if `exact`.
  void rank(int64_t i, Ranking& ranking, bool exact) {
    ranking.start(i);
    if (rows_.metric == Metric::cosine && rows_.is_zero(i)) {  // all others are at distance 1
      for (int64_t j = 0; int64_t(ranking.found.size()) < k_; j++)
        if (j != i) ranking.found.push_back({1, int32_t(j)});
      return;
    }
    lists_.tighten(i, [&](double tau) { return slack_(i, tau); });
    if (lists_.flooded(i)) {
      for (int64_t j = 0; j < rows_.n; j++)
        if (j != i) ranking.add(j);
      ranking.sort();
    } else if (exact) {
      for (int64_t c = 0; c < lists_.count(i); c++) ranking.add(lists_.row(i)[c].index);
      ranking.sort();
    } else {
      rank_by_keys(i, ranking);
    }
  }

  // Candidates in the order of their keys; those among which rounding leaves the order open, in the
  // order of their distances.
  void rank_by_keys(int64_t i, Ranking& ranking) {
    const Candidate* const candidates = lists_.sorted(i);
    const int64_t count = lists_.count(i);
    const double slack = slack_(i, double(candidates[k_ - 1].key));
    for (int64_t first = 0; first < std::min(k_, count);) {
      int64_t last = first + 1;
      while (last < count && double(candidates[last].key) - candidates[last - 1].key <= slack)
        last++;
      if (last == first + 1)
        ranking.found.push_back({kNaN, candidates[first].index});
      else
        for (int64_t c = first; c < last; c++) ranking.add(candidates[c].index);
      ranking.sort(first);
      first = last;
    }
  }

  // Computes the products of a tile, blocks I and J >= I of rows, and takes candidates from them.
  void compare(int64_t block_i, int64_t block_j) {
    const int64_t i0 = block_i * kTaskRows, j_end = std::min((block_j + 1) * kTaskRows, rows_.n);
    alignas(64) float products[kTaskRows * kMaxUnit];
    for (int64_t j = block_j * kTaskRows; j < j_end; j += unit_) {
      const int64_t i_end = std::min({i0 + kTaskRows, rows_.n, j + unit_});
      multiply(i0, i_end, j, products);
      const std::lock_guard<std::mutex> lock_i(locks_[block_i]);
      std::unique_lock<std::mutex> lock_j;
      if (block_j != block_i) lock_j = std::unique_lock<std::mutex>(locks_[block_j]);
      for (int64_t i = i0; i < i_end; i++) take(i, j, products + (i - i0) * unit_);
    }
  }

  // products[i - begin][q] = c_i'c_(j + q) for i in [begin, end), q < unit.
  void multiply(int64_t begin, int64_t end, int64_t j, float* products) const {
    const int64_t w = isa_.width, width = rows_.layer.width;
    const int64_t parts = ceil_div(width, kDepth);
    for (int64_t d = 0; d < parts; d++) {
      const int64_t k = width * d / parts, depth = width * (d + 1) / parts - k;
      const float* const right = packed_.panels.data() + j * width + k * w;
      for (int64_t i = begin; i < end; i += isa_.mr)
        isa_.micro[kMaxPanels - 1](packed_.panels.data() + i / w * w * width + k * w + i % w, right,
                                   w * width, depth, products + (i - begin) * unit_, unit_, d > 0);
    }
  }

  // Takes candidates from the products of row i with rows j to j + unit, of which those after i
  // count.
  void take(int64_t i, int64_t j, const float* products) {
    const float* const bias = packed_.bias.data();
    alignas(8) uint8_t flags[kMaxUnit];
    neighbours_table().flag(products, unit_, bias[i], lists_.limits()[i], bias + j,
                            lists_.limits() + j, flags);
    const int64_t first = std::max<int64_t>(i + 1 - j, 0), end = std::min(unit_, rows_.n - j);
    for (int64_t q = first; q < end; q++) {
      if (flags[q] == 0) continue;
      if (flags[q] & kNearRow)
        lists_.push(i, {bias[j + q] - products[q], int32_t(j + q)},
                    [&](double tau) { return slack_(i, tau); });
      if (flags[q] & kNearColumn)
        lists_.push(j + q, {bias[i] - products[q], int32_t(i)},
                    [&](double tau) { return slack_(j + q, tau); });
    }
  }

  const Rows& rows_;
  int64_t k_;
  const Runtime& rt_;
  const IsaTable<float>& isa_;
  int64_t unit_;
  PackedRows packed_;
  Slack slack_;
  Shortlists lists_;
  int64_t blocks_;
  std::unique_ptr<std::mutex[]> locks_;  // one for each block of rows
};

void check_memory(const NearestProblem& problem, int64_t max_memory, int threads) {
  int64_t widest = 0;
  for (const LayerView& layer : problem.layers) widest = std::max(widest, layer.width);
  const int64_t n = problem.n, padded = round_to(n, kMaxPanels * isa_table<float>().width);
  // A thread that computes distances holds two rows, and at most all n of them.
  const int64_t ranking = threads * (16 * widest + 16 * n);
  const int64_t wanted = rows_bytes(n, widest, threads) + packed_bytes(n, widest, threads) +
                         Shortlists::bytes(n, problem.k, padded) + ranking;
  const int64_t bound = memory_bound(max_memory);
  if (wanted > bound)
    throw std::invalid_argument("max_memory: wanted at least " + std::to_string(wanted) +
                                " bytes for the neighbours of one layer, got " +
                                std::to_string(bound));
}

}  // namespace

void nearest_rows(const NearestProblem& problem, int64_t max_memory, const Runtime& rt,
                  int32_t* index, double* values, double* own) {
  check_memory(problem, max_memory, rt.threads);
  const int64_t n = problem.n, entries = n * problem.k, count = int64_t(problem.layers.size());
  for (int64_t l = 0; l < count; l++) {
    const Rows rows = read_rows(problem.layers[l], n, problem.metric, rt);
    if (rows.nonfinite > 0)
      throw std::invalid_argument(problem.name + "[" + std::to_string(l) +
                                  "]: wanted finite values, got " + std::to_string(rows.nonfinite) +
                                  " NaN or infinite of " + std::to_string(n * rows.layer.width));
    if (rows.defined) {
      NearestRows nearest(rows, problem.k, rt);
      nearest.search();
      nearest.write(index + l * entries, values ? values + l * entries : nullptr,
                    own ? own + l * n : nullptr);
    } else {
      std::fill(index + l * entries, index + (l + 1) * entries, -1);
      if (values) std::fill(values + l * entries, values + (l + 1) * entries, kNaN);
      if (own) std::fill(own + l * n, own + (l + 1) * n, kNaN);
    }
    if (rt.progress) rt.progress(double(l + 1) / double(count));
  }
}

}  // namespace simcore::cpu
