// Second-order similarity: the distances from a row to its neighbours in either of two layers.
//
// Math      per row i and pair of layers: the cosine between the cosine distances of either layer
//           to N_X(i) or N_Y(i). Where all distances of a layer are 0: 1 if those of the other are,
//           else 0.
// Shapes    W(i), the neighbours of row i in any layer; distances D [L, rows of a block, |W|].
// Plan      for each block of rows, as many as memory has room for:
//             W of every row                                     tasks: rows
//             D of every layer, row by row of one layer          tasks: layer x rows
//             all pairs of layers, from D and the lists          tasks: rows, in at most
//             kOrderSlabs
//                                                                shares with sums of their own
// Cost      L n |W| p terms in float64, from rows in cache; 2 k terms a pair and row. 13 layers of
//           [1600, 768] with |W| = 70 at .15 ns a term: foreseen .17 s on a core, pairs .01 s.
// Numerics  float64; bit-equal whatever the threads. A layer with itself is exactly 1.
// Twin      simcore/reference/neighbours.py:second_order
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/math/index_math.h"
#include "core/math/nan.h"
#include "cpu/base/buffer.h"
#include "cpu/base/memory.h"
#include "cpu/neighbours/neighbours.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kOrderSlabs = 16;  // at most, of rows
constexpr int64_t kTaskRows = 16;    // of a layer's distances

class SecondOrder {
 public:
  SecondOrder(const ListPairs& pairs, const std::vector<LayerView>& layers, int64_t max_memory,
              const Runtime& rt)
      : pairs_(pairs),
        rt_(rt),
        count_(int64_t(layers.size())),
        most_(std::min(pairs.n - 1, count_ * pairs.k)),
        cells_(pairs.count_x * pairs.columns()),
        slabs_(std::min(kOrderSlabs, pairs.n)) {
    plan(layers, memory_bound(max_memory));
    for (const LayerView& layer : layers)
      rows_.push_back(read_rows(layer, pairs.n, Metric::cosine, rt));
  }

  std::vector<double> run() {
    const Buffer<int32_t> members(block_ * most_);
    const Buffer<double> distances(count_ * block_ * most_);
    std::vector<int32_t> counts(block_);
    std::vector<double> sums(slabs_ * cells_);
    members_ = members.data(), distances_ = distances.data(), counts_ = counts.data();
    for (int64_t begin = 0; begin < pairs_.n; begin += block_) {
      const int64_t end = std::min(begin + block_, pairs_.n);
      unite(begin, end);
      measure(begin, end);
      parallel_tasks(rt_, slabs_, [&](int64_t slab, int) {
        const int64_t first = std::max(begin, pairs_.n * slab / slabs_);
        const int64_t last = std::min(end, pairs_.n * (slab + 1) / slabs_);
        Row row(*this);
        for (int64_t i = first; i < last; i++) add(row, i, i - begin, &sums[slab * cells_]);
      });
      if (rt_.progress) rt_.progress(double(end) / double(pairs_.n));
    }
    return finish(sums);
  }

 private:
  // What a thread needs for the pairs of one row.
  struct Row {
    std::vector<int32_t> places;  // [layers, k] of the neighbours among the members
    std::vector<int32_t> place;   // [n] of a row among the members
    std::vector<int64_t> seen;    // [most] the last layer whose neighbour the member was
    int64_t now = 0;
    explicit Row(const SecondOrder& all)
        : places(all.count_ * all.pairs_.k), place(all.pairs_.n), seen(all.most_) {}
  };

  // Sets the rows of a block. Every allocated byte is counted here.
  void plan(const std::vector<LayerView>& layers, int64_t bound) {
    int64_t widest = 0, held = 0;
    for (const LayerView& layer : layers) {
      widest = std::max(widest, layer.width);
      held += 16 * pairs_.n + 8 * layer.width;
    }
    held += rows_bytes(pairs_.n, widest, rt_.threads) + 8 * (slabs_ + 1) * cells_ +
            rt_.threads * (16 * widest + 4 * count_ * pairs_.k + 4 * pairs_.n + 8 * most_);
    const auto wanted = [&](int64_t rows) {
      return held + buffer_bytes(4 * rows * most_) + buffer_bytes(8 * count_ * rows * most_) +
             4 * rows;
    };
    if (wanted(1) > bound)
      throw std::invalid_argument("max_memory: wanted at least " + std::to_string(wanted(1)) +
                                  " bytes for the distances of one row, got " +
                                  std::to_string(bound));
    block_ = std::clamp<int64_t>((bound - held) / (8 * count_ * most_), 1, pairs_.n);
    while (wanted(block_) > bound) block_ -= (block_ + 15) / 16;
  }

  const int32_t* list(int64_t layer, int64_t i) const {
    const bool in_x = layer < pairs_.count_x;
    const int32_t* const lists = in_x ? pairs_.x : pairs_.y;
    return lists + ((in_x ? layer : layer - pairs_.count_x) * pairs_.n + i) * pairs_.k;
  }
  bool defined(int64_t layer) const { return list(layer, 0)[0] >= 0; }
  double* distances(int64_t layer, int64_t row) const {
    return distances_ + (layer * block_ + row) * most_;
  }

  // Collects the members of every row of a block.
  void unite(int64_t begin, int64_t end) const {
    parallel_tasks(rt_, ceil_div(end - begin, kTaskRows), [&](int64_t task, int) {
      std::vector<uint8_t> is_member(pairs_.n);
      for (int64_t r = task * kTaskRows; r < std::min((task + 1) * kTaskRows, end - begin); r++) {
        int32_t* const members = members_ + r * most_;
        int32_t count = 0;
        for (int64_t l = 0; l < count_; l++) {
          const int32_t* const own = list(l, begin + r);
          for (int64_t t = 0; t < pairs_.k && own[0] >= 0; t++) {
            if (is_member[own[t]]) continue;
            is_member[own[t]] = 1;
            members[count++] = own[t];
          }
        }
        counts_[r] = count;
        for (int32_t c = 0; c < count; c++) is_member[members[c]] = 0;
      }
    });
  }

  // Computes the distances of every layer to the members of every row of a block.
  void measure(int64_t begin, int64_t end) const {
    const int64_t parts = ceil_div(end - begin, kTaskRows);
    parallel_tasks(rt_, count_ * parts, [&](int64_t task, int) {
      const int64_t l = task / parts, first = task % parts * kTaskRows;
      if (!defined(l)) return;
      const Rows& rows = rows_[l];
      std::vector<double> from(rows.layer.width), to(rows.layer.width);
      for (int64_t r = first; r < std::min(first + kTaskRows, end - begin); r++) {
        rows.load(begin + r, from.data());
        for (int32_t c = 0; c < counts_[r]; c++) {
          const int64_t j = members_[r * most_ + c];
          rows.load(j, to.data());
          distances(l, r)[c] = rows.distance(begin + r, from.data(), j, to.data());
        }
      }
    });
  }

  // Adds the cosines of all pairs of layers for row i, which is row r of the block.
  void add(Row& row, int64_t i, int64_t r, double* sums) const {
    const int64_t k = pairs_.k, first_y = pairs_.symmetric() ? 0 : pairs_.count_x;
    for (int32_t c = 0; c < counts_[r]; c++) row.place[members_[r * most_ + c]] = c;
    for (int64_t l = 0; l < count_; l++)
      for (int64_t t = 0; t < k && defined(l); t++)
        row.places[l * k + t] = row.place[list(l, i)[t]];
    for (int64_t a = 0; a < pairs_.count_x; a++) {
      if (!defined(a)) continue;
      row.now++;
      for (int64_t t = 0; t < k; t++) row.seen[row.places[a * k + t]] = row.now;
      for (int64_t b = pairs_.symmetric() ? a + 1 : 0; b < pairs_.columns(); b++)
        if (defined(first_y + b)) sums[a * pairs_.columns() + b] += cosine(row, r, a, first_y + b);
    }
  }

  double cosine(const Row& row, int64_t r, int64_t a, int64_t b) const {
    const int64_t k = pairs_.k;
    const double *const of_a = distances(a, r), *const of_b = distances(b, r);
    double products = 0, squares_a = 0, squares_b = 0;
    const auto add_member = [&](int64_t place) {
      products += of_a[place] * of_b[place];
      squares_a += of_a[place] * of_a[place];
      squares_b += of_b[place] * of_b[place];
    };
    for (int64_t t = 0; t < k; t++) add_member(row.places[a * k + t]);
    for (int64_t t = 0; t < k; t++)
      if (row.seen[row.places[b * k + t]] != row.now) add_member(row.places[b * k + t]);
    if (squares_a == 0 || squares_b == 0) return squares_a == squares_b ? 1 : 0;
    return std::min(products / std::sqrt(squares_a * squares_b), 1.0);
  }

  std::vector<double> finish(const std::vector<double>& sums) const {
    const int64_t columns = pairs_.columns(), first_y = pairs_.symmetric() ? 0 : pairs_.count_x;
    std::vector<double> grid(cells_, kNaN);
    for (int64_t a = 0; a < pairs_.count_x; a++)
      for (int64_t b = pairs_.symmetric() ? a : 0; b < columns; b++) {
        if (!defined(a) || !defined(first_y + b)) continue;
        double total = 0;
        for (int64_t s = 0; s < slabs_; s++) total += sums[s * cells_ + a * columns + b];
        const bool itself = pairs_.symmetric() && a == b;
        grid[a * columns + b] = itself ? 1 : total / double(pairs_.n);
        if (pairs_.symmetric()) grid[b * columns + a] = grid[a * columns + b];
      }
    return grid;
  }

  const ListPairs& pairs_;
  const Runtime& rt_;
  int64_t count_, most_, cells_, slabs_, block_ = 1;
  std::vector<Rows> rows_;  // of every layer
  // Of a block of rows: members [rows, most], their number [rows], distances [L, rows, most].
  int32_t *members_ = nullptr, *counts_ = nullptr;
  double* distances_ = nullptr;
};

}  // namespace

std::vector<double> second_order_similarity(const ListPairs& pairs,
                                            const std::vector<LayerView>& layers,
                                            int64_t max_memory, const Runtime& rt) {
  return SecondOrder(pairs, layers, max_memory, rt).run();
}

}  // namespace simcore::cpu
