// Best partners and multiple correlations of single neurons, for all layer pairs.
//
// Math      best_partners: max_k' |x_k^T y_k'| / (||x_k|| ||y_k'||) over centred columns (Wu et al.
//           2020, A.1). multiple_correlations: sqrt(sum_c (q_c^T x_k)^2) / ||x_k|| (A.2).
// Shapes    layers [n, p_i]; means over the neurons of x for every layer of y, [Lx, Ly].
// Plan      column_products.h; each product is reduced to its rows' (and, for x with itself, its
//           columns') maxima or sums while it is in cache: no [p, q] matrix is ever written. x with
//           itself needs each pair's product once for both directions.
// Cost      2 n p_i p_j flops a pair; the reduction reads each entry of a product once.
// Numerics  float64 beyond the products. Tasks of a block merge in order, so that the first of
//           equal partners wins whatever the threads do. A layer with itself is not computed: a
//           neuron's best partner is itself, with 1.
// Twin      simcore/reference/neurons.py:best_partners, mixedsim_grid
#include "cpu/neurons/neurons.h"

#include <cmath>

#include "core/math/nan.h"
#include "cpu/neurons/column_norms.h"
#include "cpu/products/column_products.h"

namespace simcore::cpu {
namespace {

struct Best {
  double value = -1;
  int64_t partner = -1;
  void update(double other, int64_t index) {
    if (other > value) value = other, partner = index;
  }
};

template <typename T>
class PartnerSearch {
 public:
  PartnerSearch(const Grid<T>& grid, const TilePlan& plan, bool keep, const Runtime& rt)
      : grid_(grid),
        plan_(plan),
        keep_(keep),
        norms_(column_norms(grid, plan, rt)),
        first_(grid.symmetric ? 0 : grid.count_x),
        columns_(grid.count() - first_),
        across_(norms_.offset.back()),
        found_{std::vector<double>(grid.count_x * columns_, kNaN), {}, {}} {
    if (!keep) return;
    found_.best.assign(norms_.offset[grid.count_x] * columns_, kNaN);
    found_.partner.assign(norms_.offset[grid.count_x] * columns_, -1);
  }

  Partners run(const Runtime& rt) {
    int64_t tasks = 0, widest = 0;
    for (const LayerView& layer : grid_.layers) {
      tasks += layer.width / plan_.tile_cols + 1;
      widest = std::max(widest, layer.width);
    }
    rows_.resize(tasks * plan_.tile_rows);
    down_.resize(widest * columns_);
    ColumnProducts<T>(grid_, plan_, rt)
        .run(
            [&](const ProductBlock& left, int64_t b, int64_t) {
              return b > left.layer && grid_.wanted(left.layer, b) ? left.columns : 0;
            },
            [&](const ProductBlock& left, const ProductBlock& right, int64_t task,
                const double* product) { reduce(left, right, task, product); },
            [&](const ProductBlock& left, const std::vector<ProductBlock>& rights) {
              merge(left, rights);
              if (left.column + left.columns == grid_.layers[left.layer].width) close(left.layer);
            });
    for (int64_t l = 0; grid_.symmetric && l < grid_.count(); l++) close_self(l);
    return std::move(found_);
  }

 private:
  const double* inverse(int64_t layer) const { return &norms_.inverse[norms_.offset[layer]]; }
  Best* across(int64_t layer) { return &across_[norms_.offset[layer]]; }

  // Merges the maxima of rows into rows_, because several tasks of a block share its rows, and the
  // maxima of columns straight into across_, because the blocks of a layer come one after another.
  void reduce(const ProductBlock& left, const ProductBlock& right, int64_t task,
              const double* product) {
    const double* inverse_left = inverse(left.layer) + left.column;
    const double* inverse_right = inverse(right.layer) + right.column;
    Best* columns = across(right.layer) + right.column;
    for (int64_t i = 0; i < left.columns; i++) {
      Best row;
      for (int64_t j = 0; inverse_left[i] > 0 && j < right.columns; j++) {
        if (inverse_right[j] == 0) continue;
        const double r = std::min(
            std::fabs(product[i * plan_.tile_cols + j]) * inverse_left[i] * inverse_right[j], 1.0);
        row.update(r, right.column + j);
        if (grid_.symmetric) columns[j].update(r, left.column + i);
      }
      rows_[task * plan_.tile_rows + i] = row;
    }
  }

  void merge(const ProductBlock& left, const std::vector<ProductBlock>& rights) {
    for (size_t t = 0; t < rights.size(); t++)
      for (int64_t i = 0; i < left.columns; i++) {
        const Best& row = rows_[t * plan_.tile_rows + i];
        down_[(left.column + i) * columns_ + rights[t].layer - first_].update(row.value,
                                                                              row.partner);
      }
  }

  // Stores the results of layer a, whose products with later layers are all done, and makes room
  // for the next layer.
  void close(int64_t a) {
    for (int64_t b = a + 1; b < grid_.count(); b++) {
      if (!grid_.wanted(a, b)) continue;
      store(a, b, down_.data() + b - first_, columns_);
      if (grid_.symmetric) store(b, a, across(b), 1);
    }
    std::fill(down_.begin(), down_.end(), Best{});
    std::fill(across_.begin(), across_.end(), Best{});
  }

  void close_self(int64_t l) {
    std::vector<Best> self(grid_.layers[l].width);
    for (int64_t k = 0; k < grid_.layers[l].width; k++)
      if (inverse(l)[k] > 0) self[k] = {1.0, k};
    store(l, l, self.data(), 1);
  }

  // Stores the result of x_l with y_other, given the best partners of its neurons, `stride` apart.
  void store(int64_t l, int64_t other, const Best* best, int64_t stride) {
    const int64_t width = grid_.layers[l].width, column = other - first_;
    double sum = 0;
    int64_t known = 0;
    for (int64_t k = 0; k < width; k++) {
      const Best& found = best[k * stride];
      if (found.partner < 0) continue;
      sum += found.value;
      known++;
      if (!keep_) continue;
      const int64_t index = (norms_.offset[l] + k) * columns_ + column;
      found_.best[index] = found.value;
      found_.partner[index] = found.partner;
    }
    if (known > 0) found_.grid[l * columns_ + column] = sum / double(known);
  }

  const Grid<T>& grid_;
  const TilePlan& plan_;
  bool keep_;
  Norms norms_;
  int64_t first_, columns_;   // layers of y
  std::vector<Best> rows_;    // [tasks of a block, tile_rows]
  std::vector<Best> down_;    // [columns of the layer at hand, layers of y]
  std::vector<Best> across_;  // [columns of all layers], with the layer at hand
  Partners found_;
};

template <typename T>
std::vector<double> correlations(const Grid<T>& grid, const TilePlan& plan, const Runtime& rt) {
  const Norms norms = column_norms(grid, plan, rt);
  const int64_t count_y = grid.count() - grid.count_x, tile = plan.tile_cols;
  std::vector<double> result(grid.count_x * count_y);
  int64_t tasks = 0;
  for (const LayerView& layer : grid.layers) tasks += layer.width / tile + 1;
  std::vector<double> rows(tasks * plan.tile_rows), squares(plan.tile_rows * count_y);
  ColumnProducts<T>(grid, plan, rt)
      .run(
          [&](const ProductBlock& left, int64_t b, int64_t) {
            return left.layer < grid.count_x && b >= grid.count_x ? left.columns : 0;
          },
          [&](const ProductBlock& left, const ProductBlock& right, int64_t task,
              const double* product) {
            for (int64_t i = 0; i < left.columns; i++) {
              double sum = 0;
              for (int64_t j = 0; j < right.columns; j++)
                sum += product[i * tile + j] * product[i * tile + j];
              rows[task * plan.tile_rows + i] = sum;
            }
          },
          [&](const ProductBlock& left, const std::vector<ProductBlock>& rights) {
            std::fill(squares.begin(), squares.end(), 0.0);
            for (size_t t = 0; t < rights.size(); t++)
              for (int64_t i = 0; i < left.columns; i++)
                squares[i * count_y + rights[t].layer - grid.count_x] +=
                    rows[t * plan.tile_rows + i];
            for (int64_t i = 0; i < left.columns; i++)
              for (int64_t j = 0; j < count_y; j++) {
                // y was scaled by a power of two when it was centred.
                const double length =
                    std::ldexp(norms.inverse[norms.offset[left.layer] + left.column + i],
                               grid.centring[grid.count_x + j].exponent);
                result[left.layer * count_y + j] +=
                    std::min(std::sqrt(squares[i * count_y + j]) * length, 1.0);
              }
          });
  for (int64_t l = 0; l < grid.count_x; l++) {
    int64_t known = 0;
    for (int64_t k = norms.offset[l]; k < norms.offset[l + 1]; k++) known += norms.inverse[k] > 0;
    for (int64_t j = 0; j < count_y; j++) {
      double& mean = result[l * count_y + j];
      const bool defined = known > 0 && grid.centring[grid.count_x + j].has_variance;
      mean = defined ? mean / double(known) : kNaN;
    }
  }
  return result;
}

}  // namespace

TilePlan neuron_plan(const LayersProblem& problem, int64_t max_memory, int threads) {
  return plan_columns(grid_request(problem, max_memory, threads));
}

Partners best_partners(const LayersProblem& problem, bool keep, const TilePlan& plan,
                       const Runtime& rt) {
  if (plan.float64) {
    const auto grid = make_grid<double>(problem, rt);
    return PartnerSearch<double>(grid, plan, keep, rt).run(rt);
  }
  const auto grid = make_grid<float>(problem, rt);
  return PartnerSearch<float>(grid, plan, keep, rt).run(rt);
}

std::vector<double> multiple_correlations(const LayersProblem& problem, const TilePlan& plan,
                                          const Runtime& rt) {
  if (plan.float64) return correlations(make_grid<double>(problem, rt), plan, rt);
  return correlations(make_grid<float>(problem, rt), plan, rt);
}

}  // namespace simcore::cpu
