// Best partners and one-to-one matches of the neurons of all layer pairs.
//
// Math      gains g_ij to be summed: Pearson correlations, or products x_i'y_j of columns that are
//           not centred: x_i'y_j = (centred product) + n m_i m'_j, m the means. All neurons of the
//           narrower layer are assigned, so that a term of such a neuron alone is the same for
//           every assignment, and is left out. Squared distance of the matched layers: sum over
//           rows and neurons of (x - y)^2, the unmatched ones against 0. Angle: 2 asin(d / 2) with
//           d the distance of the layers over their Frobenius norms.
// Shapes    a matrix of gains [narrower, wider] a pair, negated, in T; neurons without variance
//           have no row or column in it.
// Plan      for groups of pairs whose matrices memory has room for:
//             products of all pairs of the group by column_products.h, each written to its matrix
//             a task a pair: largest of rows and columns, or the assignment (assignment.cpp)
// Cost      2 n p q flops a pair, once for both directions; a matrix is written once and read a few
//           times; assignment.cpp. Distances go over both layers once more, in float64.
// Numerics  products of centred columns as in column_products.h; gains rounded to T. Distances are
//           those of the given entries in float64: equal layers are exactly 0 apart, and rounding
//           of gains can only choose another assignment whose total is as good up to that rounding.
// Twin      simcore/reference/matching.py:matching_grid
#include "cpu/neurons/matching.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "core/math/index_math.h"
#include "core/math/nan.h"
#include "cpu/base/memory.h"
#include "cpu/neurons/assignment.h"
#include "cpu/neurons/column_norms.h"
#include "cpu/products/column_products.h"

namespace simcore::cpu {
namespace {

// A layer as distances see it: its entries times 2^-exponent have squares in range.
struct Extent {
  int exponent = 0;
  double norm = 0;  // Frobenius, of the scaled entries
};

const void* row_of(const LayerView& layer, int64_t i) {
  return static_cast<const char*>(layer.data) + i * layer.row_stride * bytes_of(layer.dtype);
}

// Writes row i times two factors, each product rounded.
void load_row(const LayerView& layer, int64_t i, double scale, double factor, double* out) {
  isa_table<double>().load(row_of(layer, i), layer.dtype, layer.col_stride, layer.width, out);
  for (int64_t k = 0; k < layer.width; k++) out[k] = (out[k] * scale) * factor;
}

Extent extent_of(const LayerView& layer, int64_t n) {
  constexpr int kOrdinary = 300, kMost = 1000;  // squares of 2^300 are in range
  std::vector<double> x(layer.width);
  Extent extent;
  if (layer.dtype == DType::f64) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
      load_row(layer, i, 1, 1, x.data());
      for (const double value : x) largest = std::max(largest, std::abs(value));
    }
    if (largest > 0 && std::abs(std::ilogb(largest)) > kOrdinary)
      extent.exponent = std::clamp(std::ilogb(largest), -kMost, kMost);
  }
  double square = 0;
  for (int64_t i = 0; i < n; i++) {
    load_row(layer, i, std::ldexp(1.0, -extent.exponent), 1, x.data());
    for (const double value : x) square += value * value;
  }
  extent.norm = std::sqrt(square);
  return extent;
}

template <typename T>
class MatchPass {
 public:
  MatchPass(const Grid<T>& grid, Matching matching, MatchScore score, int64_t max_memory,
            const Runtime& rt)
      : grid_(grid),
        matching_(matching),
        score_(score),
        rt_(rt),
        first_y_(grid.symmetric ? 0 : grid.count_x),
        columns_(grid.count() - first_y_),
        values_(grid.count_x * columns_, kNaN),
        slot_(grid.count() * grid.count(), -1) {
    for (const LayerView& layer : grid.layers) widest_ = std::max(widest_, layer.width);
    stride_ = round_to(widest_, isa_table<T>().width);
    plan(memory_bound(max_memory));
    prepare();
  }

  std::vector<double> run() {
    std::vector<Pair> pairs;
    for (int64_t a = 0; a < grid_.count_x; a++)
      for (int64_t b = grid_.symmetric ? a : 0; b < columns_; b++)
        if (grid_.symmetric && a == b)
          values_[a * columns_ + a] = defined(a) ? (similar() ? 1 : 0) : kNaN;
        else if (defined(a) && defined(first_y_ + b))
          pairs.push_back(pair_of(a, first_y_ + b));
    const Buffer<T> gains(together_ * widest_ * stride_);
    std::vector<Assignment<T>> solvers;
    for (int t = 0; t < rt_.threads; t++) solvers.emplace_back(widest_);
    for (size_t begin = 0; begin < pairs.size(); begin += together_) {
      const size_t end = std::min(begin + together_, pairs.size());
      multiply(pairs, begin, end, gains.data());
      parallel_tasks(rt_, int64_t(end - begin), [&](int64_t task, int thread) {
        store(pairs[begin + task],
              value(pairs[begin + task], gains.data() + task * widest_ * stride_, solvers[thread]));
      });
      if (rt_.progress) rt_.progress(double(end) / double(pairs.size()));
    }
    if (rt_.progress) rt_.progress(1);
    return std::move(values_);
  }

 private:
  // Layers a and b; the narrower one has the rows of the matrix.
  struct Pair {
    int64_t a, b, rows, columns;
    bool turned;  // the rows are neurons of b
  };

  bool similar() const { return score_ == MatchScore::correlation; }
  bool defined(int64_t l) const {
    if (similar()) return kept_[l] > 0;
    return score_ == MatchScore::distance || extents_[l].norm > 0;
  }

  // Every allocated byte is counted here, beside those of the plan of the products.
  void plan(int64_t bound) {
    const int64_t matrix = int64_t(sizeof(T)) * widest_ * stride_, count = grid_.count();
    int64_t total_width = 0;
    for (const LayerView& layer : grid_.layers) total_width += layer.width;
    const int64_t held = rt_.threads * (Assignment<T>::bytes(widest_) + 5 * 8 * widest_) +
                         24 * total_width + 8 * count * count + 48 * count * count;
    const int64_t least = held + buffer_bytes(matrix);
    GridRequest request{grid_.n, {}, {}, sizeof(T) == 8, rt_.threads, bound - least};
    for (int64_t l = 0; l < count; l++)
      (l < grid_.count_x ? request.widths_x : request.widths_y).push_back(grid_.layers[l].width);
    if (least >= bound)
      throw std::invalid_argument("max_memory: wanted at least " + std::to_string(least + 1) +
                                  " bytes for the matrix of one pair, got " +
                                  std::to_string(bound));
    // Half of what is left is for further matrices, if the products can do with the other half.
    try {
      request.max_memory = (bound - least) / 2;
      if (request.max_memory > 0) tiles_ = plan_columns(request);
    } catch (const std::invalid_argument&) {
      tiles_ = {};
    }
    if (tiles_.workspace_bytes == 0) {
      request.max_memory = bound - least;
      tiles_ = plan_columns(request);
    }
    const int64_t left = bound - least - tiles_.workspace_bytes - kHugePage;
    const int64_t pairs = std::max<int64_t>(count * count, 1);
    together_ = std::clamp<int64_t>(1 + left / matrix, 1, std::min(pairs, kMostTogether));
  }

  void prepare() {
    if (!similar()) {
      extents_.resize(grid_.count());
      parallel_tasks(rt_, grid_.count(),
                     [&](int64_t l, int) { extents_[l] = extent_of(grid_.layers[l], grid_.n); });
      means();
      return;
    }
    norms_ = column_norms(grid_, tiles_, rt_);
    place_.resize(norms_.inverse.size());
    kept_.resize(grid_.count());
    for (int64_t l = 0; l < grid_.count(); l++)
      for (int64_t k = norms_.offset[l]; k < norms_.offset[l + 1]; k++)
        place_[k] = norms_.inverse[k] > 0 ? kept_[l]++ : -1;
  }

  // Writes the column means, which are in units of the centred layer.
  void means() {
    norms_.offset.push_back(0);
    for (int64_t l = 0; l < grid_.count(); l++) {
      const Centring<T>& centring = grid_.centring[l];
      const int64_t width = grid_.layers[l].width;
      double mean = 0;
      for (int64_t k = 0; k < width; k++) {
        means_.push_back(double(centring.mean_hi[k]) + double(centring.mean_lo[k]));
        mean += means_.back() / double(width);
      }
      mean_of_means_.push_back(mean);
      norms_.offset.push_back(norms_.offset.back() + width);
    }
  }

  Pair pair_of(int64_t a, int64_t b) const {
    const int64_t p = similar() ? kept_[a] : grid_.layers[a].width;
    const int64_t q = similar() ? kept_[b] : grid_.layers[b].width;
    return {a, b, std::min(p, q), std::max(p, q), p > q};
  }

  // Fills the matrices of pairs [begin, end).
  void multiply(const std::vector<Pair>& pairs, size_t begin, size_t end, T* gains) {
    for (size_t i = begin; i < end; i++) {
      slot_[pairs[i].a * grid_.count() + pairs[i].b] = int64_t(i - begin);
      T* const matrix = gains + int64_t(i - begin) * widest_ * stride_;
      const int64_t stride = round_to(pairs[i].columns, isa_table<T>().width);
      for (int64_t r = 0; r < pairs[i].rows; r++)
        std::fill(matrix + r * stride + pairs[i].columns, matrix + (r + 1) * stride,
                  Costs<T>::beyond());
    }
    Runtime quiet = rt_;
    quiet.progress = nullptr;
    ColumnProducts<T>(grid_, tiles_, quiet)
        .run(
            [&](const ProductBlock& left, int64_t b, int64_t) {
              const int64_t a = left.layer;
              return b >= a && slot_[a * grid_.count() + b] >= 0 ? left.columns : 0;
            },
            [&](const ProductBlock& left, const ProductBlock& right, int64_t,
                const double* product) {
              const int64_t slot = slot_[left.layer * grid_.count() + right.layer];
              write(pairs[begin + slot], left, right, product, gains + slot * widest_ * stride_);
            },
            [](const ProductBlock&, const std::vector<ProductBlock>&) {});
    for (size_t i = begin; i < end; i++) slot_[pairs[i].a * grid_.count() + pairs[i].b] = -1;
  }

  // Writes the negated gains of a block of products.
  void write(const Pair& pair, const ProductBlock& left, const ProductBlock& right,
             const double* product, T* matrix) const {
    const int64_t stride = round_to(pair.columns, isa_table<T>().width);
    const int64_t x = norms_.offset[left.layer] + left.column;
    const int64_t y = norms_.offset[right.layer] + right.column;
    if (similar() && !pair.turned && is_whole(left.layer) && is_whole(right.layer)) {
      for (int64_t i = 0; i < left.columns; i++)
        write_correlations(product + i * tiles_.tile_cols, norms_.inverse[x + i],
                           &norms_.inverse[y], right.columns,
                           matrix + (left.column + i) * stride + right.column);
      return;
    }
    for (int64_t i = 0; i < left.columns; i++)
      for (int64_t j = 0; j < right.columns; j++) {
        const double value = product[i * tiles_.tile_cols + j];
        int64_t row = left.column + i, column = right.column + j;
        double gain = 0;
        if (similar()) {
          row = place_[x + i], column = place_[y + j];
          if (row < 0 || column < 0) continue;
          const double r = value * norms_.inverse[x + i] * norms_.inverse[y + j];
          gain = std::clamp(r, -1.0, 1.0);
        } else {
          gain = value + double(grid_.n) * mean_gain(pair, means_[x + i], means_[y + j]);
        }
        if (pair.turned) std::swap(row, column);
        matrix[row * stride + column] = T(-gain);
      }
  }

  bool is_whole(int64_t layer) const { return kept_[layer] == grid_.layers[layer].width; }

  // The loop of `write` where every neuron varies, which the compiler turns into vectors.
  static void write_correlations(const double* product, double inverse, const double* inverses,
                                 int64_t count, T* out) {
    for (int64_t j = 0; j < count; j++) {
      const double r = product[j] * inverse * inverses[j];
      out[j] = T(-(r < -1.0 ? -1.0 : r > 1.0 ? 1.0 : r));
    }
  }

  // The product of two column means, less what is the same for all columns of a row.
  double mean_gain(const Pair& pair, double of_a, double of_b) const {
    const double row = pair.turned ? of_b : of_a, column = pair.turned ? of_a : of_b;
    const int64_t wide = pair.turned ? pair.a : pair.b, narrow = pair.turned ? pair.b : pair.a;
    const double less = pair.rows == pair.columns ? mean_of_means_[narrow] : 0;
    return (row - less) * (column - mean_of_means_[wide]);
  }

  double value(const Pair& pair, const T* matrix, Assignment<T>& solver) const {
    const Costs<T> costs{matrix, pair.rows, pair.columns,
                         round_to(pair.columns, isa_table<T>().width)};
    if (matching_ == Matching::best) return best(costs);
    const std::vector<int64_t>& column_of = solver.solve(costs);
    if (!similar()) return distance(pair, column_of);
    double sum = 0;
    for (int64_t i = 0; i < costs.rows; i++) sum -= double(costs.row(i)[column_of[i]]);
    return sum / double(costs.rows);
  }

  // In lanes, which the compiler turns into vectors.
  static T least_of(const T* row, int64_t count) {
    constexpr int64_t lanes = 16;
    T part[lanes];
    std::fill_n(part, lanes, Costs<T>::beyond());
    int64_t j = 0;
    for (; j + lanes <= count; j += lanes)
      for (int64_t l = 0; l < lanes; l++) part[l] = row[j + l] < part[l] ? row[j + l] : part[l];
    for (; j < count; j++) part[0] = row[j] < part[0] ? row[j] : part[0];
    return *std::min_element(part, part + lanes);
  }

  double best(const Costs<T>& costs) const {
    std::vector<T> of_columns(costs.columns, Costs<T>::beyond());
    double rows = 0, columns = 0;
    for (int64_t i = 0; i < costs.rows; i++) {
      const T* const row = costs.row(i);
      for (int64_t j = 0; j < costs.columns; j++)
        of_columns[j] = row[j] < of_columns[j] ? row[j] : of_columns[j];
      rows -= double(least_of(row, costs.columns));
    }
    for (const T least : of_columns) columns -= double(least);
    return (rows / double(costs.rows) + columns / double(costs.columns)) / 2;
  }

  // The distance or the angle of two layers, given the column of the wider one for each column of
  // the narrower one.
  double distance(const Pair& pair, const std::vector<int64_t>& column_of) const {
    const int64_t narrow = pair.turned ? pair.b : pair.a, wide = pair.turned ? pair.a : pair.b;
    const int exponent = std::max(extents_[narrow].exponent, extents_[wide].exponent);
    const bool angular = score_ == MatchScore::angular;
    const auto scale_of = [&](int64_t l) {
      return std::ldexp(1.0, -(angular ? extents_[l].exponent : exponent));
    };
    const auto factor_of = [&](int64_t l) { return angular ? 1 / extents_[l].norm : 1.0; };
    std::vector<double> x(pair.rows), y(pair.columns);
    std::vector<uint8_t> matched(pair.columns);
    for (const int64_t j : column_of) matched[j] = 1;
    double square = 0;
    for (int64_t i = 0; i < grid_.n; i++) {
      load_row(grid_.layers[narrow], i, scale_of(narrow), factor_of(narrow), x.data());
      load_row(grid_.layers[wide], i, scale_of(wide), factor_of(wide), y.data());
      double of_row = 0;
      for (int64_t k = 0; k < pair.rows; k++) {
        const double d = x[k] - y[column_of[k]];
        of_row += d * d;
      }
      for (int64_t k = 0; pair.rows < pair.columns && k < pair.columns; k++)
        if (!matched[k]) of_row += y[k] * y[k];
      square += of_row;
    }
    const double length = std::sqrt(square);
    return angular ? 2 * std::asin(std::min(length / 2, 1.0)) : std::ldexp(length, exponent);
  }

  void store(const Pair& pair, double value) {
    values_[pair.a * columns_ + pair.b - first_y_] = value;
    if (grid_.symmetric) values_[pair.b * columns_ + pair.a] = value;
  }

  static constexpr int64_t kMostTogether = 32;  // whose pages are soon written again

  const Grid<T>& grid_;
  Matching matching_;
  MatchScore score_;
  const Runtime& rt_;
  int64_t first_y_, columns_;
  std::vector<double> values_;
  std::vector<int64_t> slot_;  // [L, L] of a pair in its group, or -1
  int64_t widest_ = 0, stride_ = 0, together_ = 1;
  TilePlan tiles_;
  Norms norms_;                        // offsets; for correlations the inverse lengths of columns
  std::vector<int64_t> place_;         // [columns] among those that vary; -1 for the others
  std::vector<int64_t> kept_;          // [L] columns that vary
  std::vector<Extent> extents_;        // [L] for distances
  std::vector<double> means_;          // [columns] for distances, in units of the centred layer
  std::vector<double> mean_of_means_;  // [L]
};

}  // namespace

std::vector<double> match_neurons(const LayersProblem& problem, Matching matching, MatchScore score,
                                  int64_t max_memory, const Runtime& rt) {
  if (problem.has_float64()) {
    const auto grid = make_grid<double>(problem, rt);
    return MatchPass<double>(grid, matching, score, max_memory, rt).run();
  }
  const auto grid = make_grid<float>(problem, rt);
  return MatchPass<float>(grid, matching, score, max_memory, rt).run();
}

}  // namespace simcore::cpu
