// HSIC sums of all layer pairs through products of their features: cheap when n is large against p.
//
// Math      for the linear kernel sum_ij K^a_ij K^b_ij = ||Xc_a^T Xc_b||_F^2, so no Gram is needed;
//           the diagonals K_ii are squared row lengths.
// Plan      column_products.h, a sum of squares per product. A layer with itself: entries above the
//           blocks of tile_cols on the diagonal count twice, and below them none is computed.
// Cost      2 n p_a p_b flops per pair, half for a = b.
// Numerics  squared and summed in float64 in a fixed order.
// Twin      simcore/reference/hsic.py:hsic
#include "cpu/hsic/sums.h"
#include "cpu/products/column_products.h"

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

}  // namespace

template <typename T>
GridSums feature_sums(const Grid<T>& grid, const HsicPlan& plan, const Runtime& rt) {
  const int64_t count = grid.count(), tile = plan.tile_cols;
  GridSums sums{std::vector<double>(count * count), row_norms(grid, rt), {}, {}, {}};
  int64_t total_columns = 0;
  for (const LayerView& layer : grid.layers) total_columns += layer.width / tile + 1;
  std::vector<double> values(total_columns);  // of the tasks of one block
  ColumnProducts<T>(grid, plan, rt)
      .run(
          [&](const ProductBlock& left, int64_t b, int64_t c) -> int64_t {
            if (b < left.layer || !grid.wanted(left.layer, b)) return 0;
            return b > left.layer ? left.columns : std::min(left.columns, c + tile - left.column);
          },
          [&](const ProductBlock& left, const ProductBlock& right, int64_t task,
              const double* product) {
            const bool itself = left.layer == right.layer;
            const int64_t mirrored = itself ? right.column - left.column : 0;
            const auto squares = [&](int64_t begin, int64_t end) {
              double sum = 0;
              for (int64_t i = begin; i < end; i++)
                for (int64_t j = 0; j < right.columns; j++)
                  sum += product[i * tile + j] * product[i * tile + j];
              return sum;
            };
            values[task] =
                2 * squares(0, std::min(mirrored, left.columns)) + squares(mirrored, left.columns);
          },
          [&](const ProductBlock& left, const std::vector<ProductBlock>& rights) {
            for (size_t t = 0; t < rights.size(); t++)
              sums.offdiag[left.layer * count + rights[t].layer] += values[t];
          });
  remove_diagonals(grid, rt, sums);
  return sums;
}

template GridSums feature_sums<float>(const Grid<float>&, const HsicPlan&, const Runtime&);
template GridSums feature_sums<double>(const Grid<double>&, const HsicPlan&, const Runtime&);

}  // namespace simcore::cpu
