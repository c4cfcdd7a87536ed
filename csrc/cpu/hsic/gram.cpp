// HSIC sums of all layer pairs through tiles of their Gram matrices.
//
// Math      K^l_ij = <xc^l_i, xc^l_j>, or the RBF or the distance of rows that it gives;
//           S_ab = sum_{i != j} K^a_ij K^b_ij for all layers a, b. K is symmetric: only j > i is
//           computed, twice its sum is S.
// Shapes    n examples, L layers of width p_l; a tile is rows [i0, i0 + tile_rows) against
//           [j0, j0 + tile_cols), stored per layer as G[l][tile], column group by column group.
// Plan      for each row block I:   centre, convert and pack its rows of every layer, once
//             for each column block J >= I:
//               G[l] = tile of K^l for every layer            tasks: layer x rows of the tile
//               (J beyond I: tasks are parts of layers, small enough that every thread has some; a
//               task first packs its rows of J, which stay in the thread's cache)
//               S   += G G^T over the tile's entries, [L, L]  each thread its own share and sum
//           No n x n matrix exists at any time, and nothing of a layer is recomputed per pair.
// Cost      sum_l n^2 p_l + n^2 * pairs flops, matrix products throughout. Beside them per tile
//           entry and layer: 1 / tile_rows of packing a row, and one store and load of the entry.
// Numerics  entries of K in T; S in T over kContractDepth entries, then float64. Each thread adds
//           a fixed set of chunks: the result is bit-equal on repetition with equal threads.
// Twin      simcore/reference/hsic.py:hsic
//           simcore/reference/distances.py:distance_matrix
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "core/math/nan.h"
#include "cpu/hsic/gram_tile.h"
#include "cpu/hsic/sums.h"
#include "cpu/products/contraction.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kTasksPerThread = 8;  // at least, so that threads end together
// Rows of a tile that share a block of features of its columns: with kMaxDepth features both stay
// in the second cache.
constexpr int64_t kStripRows = 2 * kTaskRows;

template <typename T>
class GramPass {
 public:
  GramPass(const Grid<T>& grid, const KernelScale* scale, const HsicPlan& plan, const Runtime& rt)
      : grid_(grid),
        scale_(scale),
        plan_(plan),
        rt_(rt),
        isa_(isa_table<T>()),
        unit_(kMaxPanels * isa_.width),
        tile_stride_(plan.tile_rows * plan.tile_cols + kTilePad),
        rows_(make_panels(plan.tile_rows)),
        gram_(grid.count() * tile_stride_),
        contraction_(ContractionPlan(grid.count_x, grid.count() - grid.count_x, isa_.width)),
        norms_(grid.count() * padded_n()) {
    int64_t widest = 0;
    for (const LayerView& layer : grid.layers) widest = std::max(widest, layer.width);
    const int64_t column_size = plan.tile_rows < grid.n ? plan.tile_cols * widest : 0;
    for (int t = 0; t < rt.threads; t++) {
      slots_.push_back(std::make_unique<ContractionSlot<T>>(contraction_));
      columns_.push_back(std::make_unique<Buffer<T>>(column_size));
      column_norms_.emplace_back(plan.tile_cols);
    }
    if (scale != nullptr) row_sums_.resize(grid.count() * grid.n);
    if (plan.power_sums) {
      squares_.resize(grid.count() * grid.n);
      cubes_.resize(grid.count());
    }
  }

  GridSums run() {
    const double total = double(grid_.n) * double(grid_.n + 1) / 2;
    double done = 0;
    for (int64_t i0 = 0; i0 < grid_.n; i0 += plan_.tile_rows) {
      pack_block(i0);
      for (int64_t j0 = i0; j0 < grid_.n; j0 += plan_.tile_cols) {
        const Tile tile(i0, j0, grid_.n, plan_, unit_, isa_.mr);
        if (j0 < i0 + plan_.tile_rows)
          compute(tile, j0 - i0);
        else
          compute_beyond(tile, j0);
        if (scale_ != nullptr) add_row_sums(tile);
        if (!cubes_.empty()) add_power_sums(tile);
        if (!plan_.rows_alone) contract(tile);
        done += tile.entries;
        if (rt_.progress) rt_.progress(std::min(1.0, done / total));
      }
    }
    return collect();
  }

 private:
  // Packed rows [i0, i0 + tile_rows) of every layer: layer l at offset[l].
  struct Panels {
    std::vector<int64_t> offset;
    std::unique_ptr<Buffer<T>> data;
  };

  int64_t padded_n() const { return round_to(grid_.n, unit_); }

  Panels make_panels(int64_t capacity) const {
    Panels panels;
    int64_t size = 0;
    for (const LayerView& layer : grid_.layers) {
      panels.offset.push_back(size);
      size +=
          round_to(std::min(capacity, grid_.n), kMaxPanels * isa_table<T>().width) * layer.width;
    }
    panels.data = std::make_unique<Buffer<T>>(size);
    return panels;
  }

  void pack_block(int64_t i0) {
    const int64_t units = round_to(std::min(plan_.tile_rows, grid_.n - i0), unit_) / unit_;
    parallel_tasks(rt_, grid_.count() * units, [&](int64_t task, int) {
      const int64_t l = task / units, begin = task % units * unit_;
      pack(l, i0 + begin, unit_,
           rows_.data->data() + rows_.offset[l] + begin * grid_.layers[l].width,
           norms_.data() + l * padded_n() + i0 + begin);
    });
  }

  // Packs rows [first, first + count) of layer l and stores their squared lengths; rows from n on
  // become zeros.
  void pack(int64_t l, int64_t first, int64_t count, T* panels, double* norms) const {
    const bool distances = scale_ != nullptr && scale_->kind == KernelKind::distance;
    for (int64_t r = 0; r < count; r += isa_.width) {
      T* panel = panels + r * grid_.layers[l].width;
      isa_.pack_rows(grid_.layers[l], grid_.centring[l], first + r,
                     std::clamp<int64_t>(grid_.n - first - r, 0, isa_.width), panel, norms + r);
      if (distances) round_lengths(panel, grid_.layers[l].width, norms + r);
    }
  }

  // Rounds the squared lengths of a panel's rows as their products are rounded: a root makes much
  // of the last bits of the distance between two equal rows, which is then exactly 0.
  void round_lengths(const T* panel, int64_t p, double* norms) const {
    T lengths[kMaxUnit];
    for (const auto& [k, depth] : blocks_of_features(p))
      isa_.squared_lengths(panel + k * isa_.width, depth, lengths, k > 0);
    std::copy(lengths, lengths + isa_.width, norms);
  }

  // The first feature and the number of features of each product over features.
  std::vector<std::pair<int64_t, int64_t>> blocks_of_features(int64_t p) const {
    const int64_t count = (p + plan_.depth - 1) / plan_.depth;
    std::vector<std::pair<int64_t, int64_t>> blocks;
    for (int64_t d = 0; d < count; d++)
      blocks.emplace_back(p * d / count, p * (d + 1) / count - p * d / count);
    return blocks;
  }

  // Computes all layers' Gram entries of a tile whose columns are rows of the packed block, from
  // row `begin` of the block on.
  void compute(const Tile& tile, int64_t begin) {
    const bool many = grid_.count() * tile.rows >= kTasksPerThread * rt_.threads * kStripRows;
    const int64_t size = many ? kStripRows : kTaskRows, strips = (tile.rows + size - 1) / size;
    parallel_tasks(rt_, grid_.count() * strips, [&](int64_t task, int) {
      const int64_t l = task / strips, first = task % strips * size;
      const T* right = rows_.data->data() + rows_.offset[l] + begin * grid_.layers[l].width;
      const double* norms = norms_.data() + l * padded_n() + tile.i0 + begin;
      compute_strip(tile, right, norms, l, first, first + size);
    });
  }

  // Computes all layers' Gram entries of a tile whose columns, from row j0 on, are not in the
  // packed block.
  void compute_beyond(const Tile& tile, int64_t j0) {
    const int64_t count = round_to(std::min(plan_.tile_cols, grid_.n - j0), unit_);
    const int64_t strips = (tile.rows + kStripRows - 1) / kStripRows;
    const int64_t wanted = (kTasksPerThread * rt_.threads + grid_.count() - 1) / grid_.count();
    const int64_t parts = std::min(strips, wanted);
    parallel_tasks(rt_, grid_.count() * parts, [&](int64_t task, int thread) {
      const int64_t l = task / parts, part = task % parts;
      T* right = columns_[thread]->data();
      double* norms = column_norms_[thread].data();
      pack(l, j0, count, right, norms);
      for (int64_t s = strips * part / parts; s < strips * (part + 1) / parts; s++)
        compute_strip(tile, right, norms, l, s * kStripRows, (s + 1) * kStripRows);
    });
  }

  // Computes rows [begin, end) of layer l's tile, kStripRows or fewer; `columns` are the tile's
  // packed columns and `norms` their squared lengths.
  void compute_strip(const Tile& tile, const T* columns, const double* norms, int64_t l,
                     int64_t begin, int64_t end) {
    const int64_t p = grid_.layers[l].width, width = isa_.width;
    const int64_t j0 = tile.groups.front().column;
    // Row i is lane i % width of panel i / width, and a panel is [p][width]: the block of features
    // from k on begins k * width entries into it. The columns lie in panels alike.
    const T* a = rows_.data->data() + rows_.offset[l];
    T* g = gram_.data() + l * tile_stride_;
    for (const auto& [k, depth] : blocks_of_features(p)) {
      for (const Tile::Group& group : tile.groups) {
        const T* right = columns + (group.column - j0) * p + k * width;
        for (int64_t i = begin; i < std::min(end, group.rows); i += isa_.mr)
          isa_.micro[kMaxPanels - 1](a + i / width * width * p + k * width + i % width, right,
                                     width * p, depth, g + group.offset + i * unit_, unit_, k > 0);
      }
    }
    for (const Tile::Group& group : tile.groups)
      finish(tile, group, norms + (group.column - j0), l, begin, std::min(end, group.rows));
  }

  // Applies the kernel function and the mask to rows [begin, end) of one column group, while they
  // are in cache.
  void finish(const Tile& tile, const Tile::Group& group, const double* norms, int64_t l,
              int64_t begin, int64_t end) {
    T* g = gram_.data() + l * tile_stride_ + group.offset;
    if (scale_ != nullptr && begin < end) apply_kernel(tile, group, norms, l, begin, end);
    const int64_t valid_columns = std::min(unit_, grid_.n - group.column);
    for (int64_t i = begin; i < end; i++) {
      const int64_t row = tile.i0 + i;
      // Entries of columns up to the row itself are zeroed: each pair counts once, and the diagonal
      // is added in float64 elsewhere. Rows and columns beyond n are padding.
      const int64_t first =
          row < grid_.n ? std::clamp<int64_t>(row + 1 - group.column, 0, unit_) : unit_;
      std::fill(g + i * unit_, g + i * unit_ + first, T(0));
      std::fill(g + i * unit_ + std::max(first, valid_columns), g + (i + 1) * unit_, T(0));
    }
  }

  void apply_kernel(const Tile& tile, const Tile::Group& group, const double* column_norms,
                    int64_t l, int64_t begin, int64_t end) {
    T norm_i[kStripRows], norm_j[kMaxUnit];
    const double* norms = norms_.data() + l * padded_n();
    for (int64_t i = begin; i < end; i++) norm_i[i - begin] = T(norms[tile.i0 + i]);
    for (int64_t j = 0; j < unit_; j++) norm_j[j] = T(column_norms[j]);
    T* g = gram_.data() + l * tile_stride_ + group.offset + begin * unit_;
    const T shift = T(scale_->shifts[l]);
    if (scale_->kind == KernelKind::distance)
      return isa_.distance(g, end - begin, unit_, norm_i, norm_j, shift);
    const T gamma = defined(l) ? T(scale_->gammas[l]) : T(0);
    isa_.rbf(g, end - begin, unit_, norm_i, norm_j, gamma, shift);
  }

  // Returns false for a layer whose RBF bandwidth is 0: more than half of its rows coincide.
  bool defined(int64_t l) const { return scale_ == nullptr || scale_->defined(l); }

  // Entry (i, j) of the upper triangle counts in row i and, by symmetry, in row j.
  void add_row_sums(const Tile& tile) {
    parallel_tasks(rt_, grid_.count(), [&](int64_t l, int) {
      double* sums = row_sums_.data() + l * grid_.n;
      for (const Tile::Group& group : tile.groups) {
        const T* g = gram_.data() + l * tile_stride_ + group.offset;
        double column[kMaxUnit] = {};
        for (int64_t i = 0; i < group.rows && tile.i0 + i < grid_.n; i++, g += unit_) {
          double row = 0;
          for (int64_t j = 0; j < unit_; j++) {
            row += g[j];
            column[j] += g[j];
          }
          sums[tile.i0 + i] += row;
        }
        for (int64_t j = 0; j < std::min(unit_, grid_.n - group.column); j++)
          sums[group.column + j] += column[j];
      }
    });
  }

  void contract(const Tile& tile) {
    const int64_t depth = contraction_.depth;
    rt_.on_threads([&](int thread) {
      ContractionSlot<T>& slot = *slots_[thread];
      for (int64_t k = thread * depth; k < tile.entries; k += rt_.threads * depth)
        slot.add(contraction_, gram_.data() + k, tile_stride_, std::min(depth, tile.entries - k));
    });
  }

  // Adds the squares to the sums of their rows, as add_row_sums does, and the cubes to one sum per
  // layer. Within a column group the sums are in T.
  void add_power_sums(const Tile& tile) {
    parallel_tasks(rt_, grid_.count(), [&](int64_t l, int) {
      double* squares = squares_.data() + l * grid_.n;
      for (const Tile::Group& group : tile.groups) {
        const T* g = gram_.data() + l * tile_stride_ + group.offset;
        T column[kMaxUnit] = {}, cube[kMaxUnit] = {}, square[kMaxUnit];
        for (int64_t i = 0; i < group.rows && tile.i0 + i < grid_.n; i++, g += unit_) {
          for (int64_t j = 0; j < unit_; j++) {
            square[j] = g[j] * g[j];
            column[j] += square[j];
            cube[j] += square[j] * g[j];
          }
          // Every unit is a multiple of 6, because it has three vectors of two elements or more.
          T row[6] = {};
          for (int64_t j = 0; j < unit_; j += 6)
            for (int64_t r = 0; r < 6; r++) row[r] += square[j + r];
          squares[tile.i0 + i] +=
              double(((row[0] + row[1]) + (row[2] + row[3])) + (row[4] + row[5]));
        }
        for (int64_t j = 0; j < unit_ && group.column + j < grid_.n; j++) {
          squares[group.column + j] += double(column[j]);
          cubes_[l] += 2 * double(cube[j]);
        }
      }
    });
  }

  GridSums collect() const {
    const int64_t count = grid_.count();
    GridSums sums{std::vector<double>(count * count), std::vector<double>(count * grid_.n),
                  row_sums_, squares_, cubes_};
    for (int64_t a = 0; a < count; a++) {
      for (int64_t b = a; b < count; b++) {
        if (!grid_.wanted(a, b)) continue;
        double upper = 0;
        for (const auto& slot : slots_) upper += slot->sum(contraction_.at(a, b));
        sums.offdiag[a * count + b] = defined(a) && defined(b) ? 2 * upper : kNaN;
      }
      for (int64_t i = 0; i < grid_.n; i++)
        sums.diag[a * grid_.n + i] =
            scale_ == nullptr ? norms_[a * padded_n() + i] : scale_->diagonal() - scale_->shifts[a];
    }
    return sums;
  }

  const Grid<T>& grid_;
  const KernelScale* scale_;  // null: linear
  const HsicPlan& plan_;
  const Runtime& rt_;
  const IsaTable<T>& isa_;
  int64_t unit_;         // columns of a group: what one micro-kernel call produces
  int64_t tile_stride_;  // entries of G per layer
  Panels rows_;
  // One per thread: packed [tile_cols / width][p][width], and squared lengths [tile_cols].
  std::vector<std::unique_ptr<Buffer<T>>> columns_;
  std::vector<std::vector<double>> column_norms_;
  Buffer<T> gram_;  // [L][tile_stride]
  ContractionPlan contraction_;
  std::vector<std::unique_ptr<ContractionSlot<T>>> slots_;  // one per thread
  std::vector<double> norms_;                               // [L, padded n] squared row lengths
  std::vector<double> row_sums_;                            // [L, n], not of the linear kernel
  std::vector<double> squares_, cubes_;                     // [L, n], [L], if asked for
};

}  // namespace

template <typename T>
GridSums gram_sums(const Grid<T>& grid, const KernelScale* scale, const HsicPlan& plan,
                   const Runtime& rt) {
  return GramPass<T>(grid, scale, plan, rt).run();
}

template GridSums gram_sums<float>(const Grid<float>&, const KernelScale*, const HsicPlan&,
                                   const Runtime&);
template GridSums gram_sums<double>(const Grid<double>&, const KernelScale*, const HsicPlan&,
                                    const Runtime&);

}  // namespace simcore::cpu
