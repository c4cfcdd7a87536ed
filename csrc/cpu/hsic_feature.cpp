// HSIC sums of all layer pairs through products of their features: cheap when n is large against p.
//
// Math      for the linear kernel sum_ij K^a_ij K^b_ij = ||Xc_a^T Xc_b||_F^2, so no Gram is needed;
//           the diagonals K_ii are squared row lengths.
// Plan      for each block F of tile_rows columns of a layer a: centre and pack F over all n rows
//             for each block of tile_cols columns of every layer b paired with a:   one task each
//               product [tile_rows, tile_cols], the depth (examples) in chunks packed as needed
//               sum of its squares
//           A layer with itself: blocks right of F count twice, blocks left of it are left out
//           (tile_rows is a multiple of tile_cols).
// Cost      2 n p_a p_b flops per pair, half for a = b. Per entry of b, one packing per tile_rows
//           columns of a.
// Numerics  products in T over `depth` examples, then float64, squared and summed in float64 in a
//           fixed order.
// Twin      simcore/reference/hsic.py:hsic
#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/gram_layout.h"
#include "cpu/grid.h"

namespace simcore::cpu {
namespace {

template <typename T>
class FeaturePass {
 public:
  FeaturePass(const Grid<T>& grid, const Plan& plan, const Runtime& rt)
      : grid_(grid),
        plan_(plan),
        rt_(rt),
        isa_(isa_table<T>()),
        unit_(kMaxPanels * isa_.width),
        left_(plan.tile_rows * grid.n) {
    for (int t = 0; t < rt.threads; t++) scratch_.push_back(std::make_unique<Scratch>(plan));
  }

  GridSums run() {
    const int64_t count = grid_.count();
    GridSums sums{std::vector<double>(count * count), row_norms(), {}};
    int64_t done = 0, total = 0;
    for (const LayerView& layer : grid_.layers) total += layer.width;
    for (int64_t a = 0; a < count; a++) {
      for (int64_t f = 0; f < grid_.layers[a].width; f += plan_.tile_rows) {
        add_block(a, f, sums.offdiag);
        done += std::min(plan_.tile_rows, grid_.layers[a].width - f);
        if (rt_.progress) rt_.progress(double(done) / double(total));
      }
    }
    remove_diagonals(sums);
    return sums;
  }

 private:
  struct Scratch {
    Buffer<T> right;         // [tile columns][depth] in panels
    Buffer<double> product;  // [tile_rows, tile_cols]
    explicit Scratch(const Plan& plan)
        : right(plan.tile_cols * plan.depth), product(plan.tile_rows * plan.tile_cols) {}
  };
  struct Task {
    int64_t layer, column;
    double weight;
  };

  // [L, n] K_ii; packing a panel of rows measures them on the way.
  std::vector<double> row_norms() {
    std::vector<double> norms(grid_.count() * grid_.n);
    const int64_t w = isa_.width, panels = (grid_.n + w - 1) / w;
    int64_t widest = 0;
    for (const LayerView& layer : grid_.layers) widest = std::max(widest, layer.width);
    std::vector<std::unique_ptr<Buffer<T>>> panel;
    for (int t = 0; t < rt_.threads; t++) panel.push_back(std::make_unique<Buffer<T>>(widest * w));
    parallel_tasks(rt_, grid_.count() * panels, [&](int64_t task, int thread) {
      const int64_t l = task / panels, row = task % panels * w;
      const int64_t rows = std::min(w, grid_.n - row);
      double lengths[kMaxUnit];
      isa_.pack_rows(grid_.layers[l], grid_.centring[l], row, rows, panel[thread]->data(), lengths);
      std::copy(lengths, lengths + rows, norms.begin() + l * grid_.n + row);
    });
    return norms;
  }

  void add_block(int64_t a, int64_t f, std::vector<double>& sums) {
    const int64_t columns = std::min(plan_.tile_rows, grid_.layers[a].width - f);
    pack_left(a, f, columns);
    std::vector<Task> tasks;
    for (int64_t b = a; b < grid_.count(); b++) {
      if (!grid_.wanted(a, b)) continue;
      for (int64_t c = a == b ? f : 0; c < grid_.layers[b].width; c += plan_.tile_cols)
        tasks.push_back({b, c, a == b && c >= f + plan_.tile_rows ? 2.0 : 1.0});
    }
    std::vector<double> values(tasks.size());
    parallel_tasks(rt_, int64_t(tasks.size()), [&](int64_t t, int thread) {
      values[t] = tasks[t].weight * squared_product(columns, tasks[t], *scratch_[thread]);
    });
    for (size_t t = 0; t < tasks.size(); t++) sums[a * grid_.count() + tasks[t].layer] += values[t];
  }

  // left_ = panels [columns / width][n][width] of layer a's columns from f on.
  void pack_left(int64_t a, int64_t f, int64_t columns) {
    const int64_t w = isa_.width, chunks = (grid_.n + plan_.depth - 1) / plan_.depth;
    parallel_tasks(rt_, chunks, [&](int64_t chunk, int) {
      const int64_t row = chunk * plan_.depth, rows = std::min(plan_.depth, grid_.n - row);
      for (int64_t c = 0; c < columns; c += w)
        isa_.pack_columns(grid_.layers[a], grid_.centring[a], row, rows, f + c,
                          std::min(w, columns - c), left_.data() + c * grid_.n + row * w);
    });
  }

  // || left^T Xc_b[:, columns of the task] ||_F^2
  double squared_product(int64_t left_columns, const Task& task, Scratch& scratch) {
    const int64_t w = isa_.width, tile = plan_.tile_cols;
    const int64_t columns = std::min(tile, grid_.layers[task.layer].width - task.column);
    double* product = scratch.product.data();
    std::fill(product, product + plan_.tile_rows * tile, 0.0);
    for (int64_t row = 0; row < grid_.n; row += plan_.depth) {
      const int64_t depth = std::min(plan_.depth, grid_.n - row);
      for (int64_t c = 0; c < round_up(columns, unit_); c += w)
        isa_.pack_columns(grid_.layers[task.layer], grid_.centring[task.layer], row, depth,
                          task.column + std::min(c, columns),
                          std::clamp<int64_t>(columns - c, 0, w), scratch.right.data() + c * depth);
      add_product(left_columns, columns, row, depth, scratch);
    }
    double sum = 0;
    for (int64_t i = 0; i < left_columns; i++)
      for (int64_t j = 0; j < columns; j++) sum += product[i * tile + j] * product[i * tile + j];
    return sum;
  }

  void add_product(int64_t left_columns, int64_t columns, int64_t row, int64_t depth,
                   Scratch& scratch) {
    const int64_t w = isa_.width, tile = plan_.tile_cols;
    alignas(64) T block[kMaxUnit * kMaxUnit];
    for (int64_t j = 0; j < columns; j += unit_)
      for (int64_t i = 0; i < left_columns; i += isa_.mr) {
        isa_.micro[kMaxPanels - 1](left_.data() + i / w * w * grid_.n + row * w + i % w,
                                   scratch.right.data() + j * depth, w * depth, depth, block, unit_,
                                   false);
        for (int64_t r = 0; r < isa_.mr; r++) {
          double* out = scratch.product.data() + (i + r) * tile + j;
          for (int64_t c = 0; c < unit_; c++) out[c] += double(block[r * unit_ + c]);
        }
      }
  }

  // sum_ij -> sum_{i != j}
  void remove_diagonals(GridSums& sums) const {
    const int64_t count = grid_.count(), n = grid_.n;
    parallel_tasks(rt_, count, [&](int64_t a, int) {
      for (int64_t b = a; b < count; b++) {
        if (!grid_.wanted(a, b)) continue;
        double diagonal = 0;
        for (int64_t i = 0; i < n; i++) diagonal += sums.diag[a * n + i] * sums.diag[b * n + i];
        sums.offdiag[a * count + b] -= diagonal;
      }
    });
  }

  const Grid<T>& grid_;
  const Plan& plan_;
  const Runtime& rt_;
  const IsaTable<T>& isa_;
  int64_t unit_;
  Buffer<T> left_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
};

}  // namespace

template <typename T>
GridSums feature_sums(const Grid<T>& grid, const Plan& plan, const Runtime& rt) {
  return FeaturePass<T>(grid, plan, rt).run();
}

template GridSums feature_sums<float>(const Grid<float>&, const Plan&, const Runtime&);
template GridSums feature_sums<double>(const Grid<double>&, const Plan&, const Runtime&);

}  // namespace simcore::cpu
