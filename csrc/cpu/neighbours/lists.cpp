// The agreement of two layers' lists of nearest rows, for all layer pairs.
//
// Math      per row, with m common neighbours of ranks r and s (from 1) in lists of length k:
//           mutual m / k; jaccard m / (2 k - m); rank 1 / H_m sum 2 / ((1 + |r - s|) (r + s)).
// Shapes    lists [L, n, k], or -1 for a layer without neighbours; means over the rows [Lx, Ly].
// Plan      row by row: the ranks of a layer's list are written to a table of all n rows, the lists
//           of the later layers (or of y) are looked up in it, and the table is cleared again. The
//           lists of one row of all layers stay in cache. Rows in at most kSlabs shares, each with
//           sums of its own that are added in order.
// Cost      k reads a pair and row. 325 layers, n = 1600, k = 10: 8e8 reads, foreseen 1 s on a
// core. Numerics  sums in float64; bit-equal whatever the threads. A layer with itself is
// exactly 1. Twin      simcore/reference/neighbours.py:mutual, jaccard, rank_similarity
#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "core/math/nan.h"
#include "cpu/base/memory.h"
#include "cpu/neighbours/neighbours.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kSlabs = 16;  // at most, of rows

class ListPass {
 public:
  ListPass(const ListPairs& pairs, ListMeasure measure, int64_t max_memory, const Runtime& rt)
      : pairs_(pairs), measure_(measure), rt_(rt), cells_(pairs.count_x * pairs.columns()) {
    const int64_t bound = memory_bound(max_memory), table = 4 * pairs.n * rt.threads;
    const int64_t slab = 8 * cells_;
    if (table + 2 * slab > bound)
      throw std::invalid_argument("max_memory: wanted at least " +
                                  std::to_string(table + 2 * slab) +
                                  " bytes to compare neighbours, got " + std::to_string(bound));
    slabs_ = std::clamp<int64_t>((bound - table) / slab - 1, 1, std::min(kSlabs, pairs.n));
    harmonic_.push_back(0);
    for (int64_t m = 1; m <= pairs.k; m++) harmonic_.push_back(harmonic_.back() + 1 / double(m));
  }

  std::vector<double> run() {
    std::vector<double> sums(slabs_ * cells_);
    std::vector<std::vector<int32_t>> ranks(rt_.threads, std::vector<int32_t>(pairs_.n));
    parallel_tasks(rt_, slabs_, [&](int64_t slab, int thread) {
      const int64_t end = pairs_.n * (slab + 1) / slabs_;
      for (int64_t i = pairs_.n * slab / slabs_; i < end; i++)
        for (int64_t a = 0; a < pairs_.count_x; a++)
          add_row(i, a, ranks[thread].data(), &sums[slab * cells_ + a * pairs_.columns()]);
    });
    std::vector<double> grid(sums.begin(), sums.begin() + cells_);
    for (int64_t s = 1; s < slabs_; s++)
      for (int64_t c = 0; c < cells_; c++) grid[c] += sums[s * cells_ + c];
    finish(grid);
    return grid;
  }

 private:
  const int32_t* list(const int32_t* lists, int64_t layer, int64_t i) const {
    return lists + (layer * pairs_.n + i) * pairs_.k;
  }
  int64_t first_column(int64_t a) const { return pairs_.symmetric() ? a + 1 : 0; }

  // Adds the agreement of row i of layer a with that of the layers of y.
  void add_row(int64_t i, int64_t a, int32_t* ranks, double* sums) const {
    const int32_t* const own = list(pairs_.x, a, i);
    if (own[0] < 0) return;
    for (int64_t t = 0; t < pairs_.k; t++) ranks[own[t]] = int32_t(t + 1);
    for (int64_t b = first_column(a); b < pairs_.columns(); b++) {
      const int32_t* const other = list(pairs_.column_lists(), b, i);
      if (other[0] >= 0) sums[b] += agreement(ranks, other);
    }
    for (int64_t t = 0; t < pairs_.k; t++) ranks[own[t]] = 0;
  }

  double agreement(const int32_t* ranks, const int32_t* other) const {
    int64_t common = 0;
    if (measure_ != ListMeasure::rank) {
      for (int64_t t = 0; t < pairs_.k; t++) common += ranks[other[t]] > 0;
      return measure_ == ListMeasure::mutual ? double(common)
                                             : double(common) / double(2 * pairs_.k - common);
    }
    double sum = 0;
    for (int64_t t = 0; t < pairs_.k; t++) {
      const int64_t r = ranks[other[t]], s = t + 1;
      if (r == 0) continue;
      common++;
      sum += 2 / double((1 + std::abs(r - s)) * (r + s));
    }
    return common == 0 ? 0 : sum / harmonic_[common];
  }

  void finish(std::vector<double>& grid) const {
    const int64_t columns = pairs_.columns();
    const double total =
        double(pairs_.n) * (measure_ == ListMeasure::mutual ? double(pairs_.k) : 1);
    for (int64_t a = 0; a < pairs_.count_x; a++)
      for (int64_t b = first_column(a); b < columns; b++) {
        double& value = grid[a * columns + b];
        const bool defined =
            list(pairs_.x, a, 0)[0] >= 0 && list(pairs_.column_lists(), b, 0)[0] >= 0;
        value = defined ? value / total : kNaN;
        if (pairs_.symmetric()) grid[b * columns + a] = value;
      }
    for (int64_t a = 0; pairs_.symmetric() && a < pairs_.count_x; a++)
      grid[a * columns + a] = list(pairs_.x, a, 0)[0] >= 0 ? 1 : kNaN;
  }

  const ListPairs& pairs_;
  ListMeasure measure_;
  const Runtime& rt_;
  int64_t cells_, slabs_ = 1;
  std::vector<double> harmonic_;  // [k + 1]
};

}  // namespace

std::vector<double> list_similarity(const ListPairs& pairs, ListMeasure measure, int64_t max_memory,
                                    const Runtime& rt) {
  return ListPass(pairs, measure, max_memory, rt).run();
}

}  // namespace simcore::cpu
