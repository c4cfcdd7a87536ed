// HSIC sums of all layer pairs through products of their features: cheap when n is large against p.
//
// Math      for the linear kernel sum_ij K^a_ij K^b_ij = ||Xc_a^T Xc_b||_F^2, so no Gram is needed;
//           the diagonals K_ii are squared row lengths.
// Plan      for each block F of tile_rows columns of a layer a: centre and pack F over all n rows
//             for each block of tile_cols columns of every layer b wanted with a:   one task each
//               product [tile_rows, tile_cols], the depth (examples) in chunks packed as needed
//               sum of its squares while it is in cache
//           No product is ever held whole. A layer with itself: entries above the blocks of
//           tile_cols on the diagonal count twice, and below them none is computed.
// Cost      2 n p_a p_b flops per pair, half for a = b; an entry of b is packed once per tile_rows
//           columns of a.
// Numerics  products in T over `depth` examples, then float64; squared and summed in float64 in a
//           fixed order.
// Twin      simcore/reference/hsic.py:hsic
#include <algorithm>
#include <memory>
#include <vector>

#include "core/math/index_math.h"
#include "cpu/base/buffer.h"
#include "cpu/hsic/sums.h"
#include "cpu/isa/isa.h"

namespace simcore::cpu {
namespace {

// Returns the diagonals K_ii, [L, n], which packing a panel of rows computes along the way.
template <typename T>
std::vector<double> row_norms(const Grid<T>& grid, const Runtime& rt) {
  const IsaTable<T>& isa = isa_table<T>();
  std::vector<double> norms(grid.count() * grid.n);
  const int64_t w = isa.width, panels = (grid.n + w - 1) / w;
  int64_t widest = 0;
  for (const LayerView& layer : grid.layers) widest = std::max(widest, layer.width);
  std::vector<std::unique_ptr<Buffer<T>>> panel;
  for (int t = 0; t < rt.threads; t++) panel.push_back(std::make_unique<Buffer<T>>(widest * w));
  parallel_tasks(rt, grid.count() * panels, [&](int64_t task, int thread) {
    const int64_t l = task / panels, row = task % panels * w;
    const int64_t rows = std::min(w, grid.n - row);
    double lengths[kMaxUnit];
    isa.pack_rows(grid.layers[l], grid.centring[l], row, rows, panel[thread]->data(), lengths);
    std::copy(lengths, lengths + rows, norms.begin() + l * grid.n + row);
  });
  return norms;
}

// Turns sum_ij into sum_{i != j}.
template <typename T>
void remove_diagonals(const Grid<T>& grid, const Runtime& rt, GridSums& sums) {
  const int64_t count = grid.count(), n = grid.n;
  parallel_tasks(rt, count, [&](int64_t a, int) {
    for (int64_t b = a; b < count; b++) {
      if (!grid.wanted(a, b)) continue;
      double diagonal = 0;
      for (int64_t i = 0; i < n; i++) diagonal += sums.diag[a * n + i] * sums.diag[b * n + i];
      sums.offdiag[a * count + b] -= diagonal;
    }
  });
}

// Sums of squared products of features, a block of columns of one layer after another.
template <typename T>
class FeaturePass {
 public:
  FeaturePass(const Grid<T>& grid, const HsicPlan& plan, const Runtime& rt)
      : grid_(grid),
        plan_(plan),
        rt_(rt),
        isa_(isa_table<T>()),
        unit_(kMaxPanels * isa_.width),
        left_(plan.tile_rows * grid.n) {
    for (int t = 0; t < rt.threads; t++) scratch_.push_back(std::make_unique<Scratch>(plan));
  }

  // Adds to sums [L, L].
  void run(std::vector<double>& sums) {
    int64_t done = 0, total = 0;
    for (const LayerView& layer : grid_.layers) total += layer.width;
    for (int64_t a = 0; a < grid_.count(); a++) {
      const int64_t width = grid_.layers[a].width;
      for (int64_t f = 0; f < width; f += plan_.tile_rows) {
        const Block left{a, f, std::min(plan_.tile_rows, width - f)};
        const std::vector<Block> rights = rights_of(left);
        std::vector<double> values(rights.size());
        pack_left(left);
        parallel_tasks(rt_, int64_t(rights.size()), [&](int64_t t, int thread) {
          values[t] = squares(left, rights[t], *scratch_[thread]);
        });
        for (size_t t = 0; t < rights.size(); t++)
          sums[a * grid_.count() + rights[t].layer] += values[t];
        done += left.columns;
        if (rt_.progress) rt_.progress(double(done) / double(total));
      }
    }
  }

 private:
  struct Block {
    int64_t layer, column, columns;  // columns [column, column + columns) of a layer
  };
  struct Scratch {
    Buffer<T> right;         // [tile columns][depth] in panels
    Buffer<double> product;  // [tile_rows, tile_cols]
    explicit Scratch(const TilePlan& plan)
        : right(plan.tile_cols * plan.depth), product(plan.tile_rows * plan.tile_cols) {}
  };

  // The blocks that are multiplied with `left`; of its own layer, none below the diagonal.
  std::vector<Block> rights_of(const Block& left) const {
    std::vector<Block> rights;
    for (int64_t b = left.layer; b < grid_.count(); b++) {
      if (!grid_.wanted(left.layer, b)) continue;
      for (int64_t c = 0; c < grid_.layers[b].width; c += plan_.tile_cols)
        if (b > left.layer || c + plan_.tile_cols > left.column)
          rights.push_back({b, c, std::min(plan_.tile_cols, grid_.layers[b].width - c)});
    }
    return rights;
  }

  // Packs left_ = panels [columns / width][n][width].
  void pack_left(const Block& left) {
    const int64_t w = isa_.width, chunks = (grid_.n + plan_.depth - 1) / plan_.depth;
    parallel_tasks(rt_, chunks, [&](int64_t chunk, int) {
      const int64_t row = chunk * plan_.depth, rows = std::min(plan_.depth, grid_.n - row);
      isa_.pack_columns(grid_.layers[left.layer], grid_.centring[left.layer], row, rows,
                        left.column, left.columns, left_.data() + row * w, grid_.n * w);
    });
  }

  // Returns the sum of squares of a product; entries that stand for two count twice.
  double squares(const Block& left, const Block& right, Scratch& scratch) const {
    const bool itself = left.layer == right.layer;
    // Columns of `left` before this one are mirrored, and those from the next block on not wanted.
    const int64_t mirrored =
        itself ? std::clamp<int64_t>(right.column - left.column, 0, left.columns) : 0;
    const int64_t wanted =
        itself ? std::min(left.columns, right.column + plan_.tile_cols - left.column)
               : left.columns;
    multiply(wanted, right, scratch);
    const auto sum_of = [&](int64_t begin, int64_t end) {
      double sum = 0;
      for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < right.columns; j++) {
          const double value = scratch.product.data()[i * plan_.tile_cols + j];
          sum += value * value;
        }
      return sum;
    };
    return 2 * sum_of(0, mirrored) + sum_of(mirrored, wanted);
  }

  void multiply(int64_t left_columns, const Block& right, Scratch& scratch) const {
    const int64_t w = isa_.width;
    double* product = scratch.product.data();
    std::fill(product, product + plan_.tile_rows * plan_.tile_cols, 0.0);
    for (int64_t row = 0; row < grid_.n; row += plan_.depth) {
      const int64_t depth = std::min(plan_.depth, grid_.n - row);
      isa_.pack_columns(grid_.layers[right.layer], grid_.centring[right.layer], row, depth,
                        right.column, right.columns, scratch.right.data(), depth * w);
      // The micro-kernel takes whole groups of panels.
      std::fill(scratch.right.data() + round_to(right.columns, w) * depth,
                scratch.right.data() + round_to(right.columns, unit_) * depth, T(0));
      add_product(left_columns, right.columns, row, depth, scratch);
    }
  }

  void add_product(int64_t left_columns, int64_t columns, int64_t row, int64_t depth,
                   Scratch& scratch) const {
    const int64_t w = isa_.width, tile = plan_.tile_cols;
    alignas(64) T block[kMaxUnit * kMaxUnit];
    // Column i is lane i % w of panel i / w. A panel of the left is [n][w], of which `depth` rows
    // from `row` on are read; one of the right holds these rows alone.
    for (int64_t j = 0; j < columns; j += unit_)
      for (int64_t i = 0; i < left_columns; i += isa_.mr) {
        isa_.micro[kMaxPanels - 1](left_.data() + i / w * w * grid_.n + row * w + i % w,
                                   scratch.right.data() + j * depth, w * depth, depth, block, unit_,
                                   false);
        isa_.add_block(block, isa_.mr, unit_, scratch.product.data() + i * tile + j, tile);
      }
  }

  const Grid<T>& grid_;
  const TilePlan& plan_;
  const Runtime& rt_;
  const IsaTable<T>& isa_;
  int64_t unit_;
  Buffer<T> left_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
};

}  // namespace

template <typename T>
GridSums feature_sums(const Grid<T>& grid, const HsicPlan& plan, const Runtime& rt) {
  const int64_t count = grid.count();
  GridSums sums{std::vector<double>(count * count), row_norms(grid, rt), {}, {}, {}};
  FeaturePass<T>(grid, plan, rt).run(sums.offdiag);
  remove_diagonals(grid, rt, sums);
  return sums;
}

template GridSums feature_sums<float>(const Grid<float>&, const HsicPlan&, const Runtime&);
template GridSums feature_sums<double>(const Grid<double>&, const HsicPlan&, const Runtime&);

}  // namespace simcore::cpu
