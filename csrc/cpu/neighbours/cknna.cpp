// HSIC of linear kernels between the neighbours that two layers share, for all layer pairs.
//
// Math      M_X[i, j] = 1 where j is in N_X(i), M = M_X . M_Y, K and L the inner products of the
//           rows of either layer. With A = M.K and B = M.L, which are not symmetric:
//             unbiased (zero diagonal)  tr(A B), sum A, sum B and 1'A B 1 as in hsic_math.h
//             biased                    tr(A H B H); a row is a candidate for its own list
//           tr(A B) = sum_ij A_ij B_ji has a term for every pair i, j in whose four lists the other
//           is; there B_ji = L_ij.
// Shapes    lists and values [L, n, k]; results [Lx, Ly], [Lx], [Ly].
// Plan      per layer: which neighbours are mutual (lists turned around). Then tasks of one layer
//           with some others: row by row the places of the first list in a table of n rows, the
//           other lists looked up in it; row and column sums of A and B in arrays of n.
// Cost      per pair and row k lookups, and about 8 operations for each common neighbour.
// Numerics  float64, in units of a power of two for each layer; bit-equal whatever the threads.
// Rows
//           with a common offset have inner products that hardly differ, and lists that hold the
//           same few rows: A is nearly a constant times M, and the sums above cancel. So A = a M +
//           A', with a the mean of the layer's values: every sum is bilinear, those of M with
//           itself are of whole numbers, hence exact, and the others are as small as A' and B'.
// Twin      simcore/reference/neighbours.py:cknna_grid, masked_hsic
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/math/index_math.h"
#include "core/math/nan.h"
#include "cpu/base/memory.h"
#include "cpu/neighbours/neighbours.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kSumBytes = 512 << 10;  // of the sums of one task, which stay in cache
constexpr int64_t kMostTogether = 16;     // layers that a task compares with one

// The lists of a layer, in which the biased estimator has replaced the last neighbour by the row
// itself where the row is nearer to itself.
struct Edges {
  std::vector<int32_t> index;  // [n, k]
  std::vector<double> values;  // [n, k] less their mean
  double mean = 0;
  std::vector<uint8_t> mutual;  // [n, k] whether the row is a neighbour of this neighbour of its
  bool defined = false;
};

// Sums of a matrix [n, n] over its rows, its columns and all of it.
struct Totals {
  std::vector<double> rows, columns;
  double all = 0;

  explicit Totals(int64_t n) : rows(n), columns(n) {}
  void clear() {
    std::fill(rows.begin(), rows.end(), 0.0);
    std::fill(columns.begin(), columns.end(), 0.0);
    all = 0;
  }
};

// Sums over the common neighbours of two layers: of M, of A' of the first and B' of the second. The
// traces are tr(M M), tr(A' M), tr(M B') and tr(A' B').
struct Sums {
  Totals m, a, b;
  double trace_mm = 0, trace_am = 0, trace_mb = 0, trace_ab = 0;

  explicit Sums(int64_t n) : m(n), a(n), b(n) {}
  void clear() {
    for (Totals* totals : {&m, &a, &b}) totals->clear();
    trace_mm = trace_am = trace_mb = trace_ab = 0;
  }
};
constexpr int64_t kSumsOfRow = 6 * 8;  // bytes of Sums for each row

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); i++) sum += a[i] * b[i];
  return sum;
}

class Cknna {
 public:
  Cknna(const NeighbourValues& x, const NeighbourValues& y, Estimator estimator, int64_t max_memory,
        const Runtime& rt)
      : n_(x.n),
        k_(x.k),
        count_x_(x.count),
        first_y_(y.count == 0 ? 0 : x.count),
        columns_(y.count == 0 ? x.count : y.count),
        symmetric_(y.count == 0),
        estimator_(estimator),
        rt_(rt),
        edges_(x.count + y.count) {
    plan(memory_bound(max_memory));
    parallel_tasks(rt, int64_t(edges_.size()), [&](int64_t l, int) {
      edges_[l] = l < count_x_ ? edges_of(x, l) : edges_of(y, l - count_x_);
    });
  }

  CknnaTerms run() {
    terms_ = {std::vector<double>(count_x_ * columns_, kNaN), std::vector<double>(count_x_, kNaN),
              std::vector<double>(columns_, kNaN)};
    std::vector<Task> tasks;
    for (int64_t a = 0; a < count_x_; a++)
      for (int64_t b = symmetric_ ? a + 1 : 0; b < columns_; b += together_)
        tasks.push_back({a, first_y_ + b, first_y_ + std::min(b + together_, columns_)});
    for (int64_t l = 0; l < int64_t(edges_.size()); l++) tasks.push_back({l, l, l + 1});
    std::vector<Workspace> workspaces;
    for (int t = 0; t < rt_.threads; t++) workspaces.emplace_back(n_, together_);
    parallel_tasks(rt_, int64_t(tasks.size()),
                   [&](int64_t task, int thread) { compare(tasks[task], workspaces[thread]); });
    return std::move(terms_);
  }

 private:
  struct Task {
    int64_t a, begin, end;  // layer a with layers [begin, end); with itself alone: its norm
  };
  struct Workspace {
    std::vector<int32_t> places;  // [n] in a list, from 1 on; 0 for rows that are not in it
    std::vector<Sums> sums;       // of each layer that is compared
    Workspace(int64_t n, int64_t together) : places(n), sums(together, Sums(n)) {}
  };

  // Sets how many layers a task takes. Every allocated byte is counted here.
  void plan(int64_t bound) {
    const int64_t count = int64_t(edges_.size());
    const int64_t held = count * n_ * k_ * 13 + 8 * (count_x_ * columns_ + count_x_ + columns_) +
                         rt_.threads * 4 * n_ + 24 * (count_x_ * columns_ + count) +
                         rt_.threads * (9 * n_ * k_ + 17 * n_);
    const int64_t of_layer = rt_.threads * kSumsOfRow * n_;
    if (held + of_layer > bound)
      throw std::invalid_argument("max_memory: wanted at least " + std::to_string(held + of_layer) +
                                  " bytes to compare neighbours, got " + std::to_string(bound));
    together_ = std::clamp<int64_t>(
        std::min((bound - held) / of_layer, kSumBytes / (kSumsOfRow * n_)), 1, kMostTogether);
  }

  Edges edges_of(const NeighbourValues& side, int64_t l) const {
    Edges edges;
    const int64_t first = l * n_ * k_;
    edges.index.assign(side.index + first, side.index + first + n_ * k_);
    edges.defined = edges.index[0] >= 0;
    if (!edges.defined) return edges;
    edges.values.assign(side.values + first, side.values + first + n_ * k_);
    if (estimator_ == Estimator::biased) add_itself(edges, side.own + l * n_);
    centre(edges);
    edges.mutual = mutual_of(edges.index);
    return edges;
  }

  void add_itself(Edges& edges, const double* own) const {
    for (int64_t i = 0; i < n_; i++) {
      int32_t& last = edges.index[i * k_ + k_ - 1];
      double& value = edges.values[i * k_ + k_ - 1];
      if (own[i] > value || (own[i] == value && i < last)) last = int32_t(i), value = own[i];
    }
  }

  // Brings the values near 1 by a power of two, and takes off their mean.
  static void centre(Edges& edges) {
    double largest = 0, sum = 0;
    for (const double value : edges.values) largest = std::max(largest, std::abs(value));
    if (largest == 0 || !std::isfinite(largest)) return;
    const int exponent = std::ilogb(largest);
    for (double& value : edges.values) sum += value = std::ldexp(value, -exponent);
    edges.mean = sum / double(edges.values.size());
    for (double& value : edges.values) value -= edges.mean;
  }

  // [n, k] whether row i is in the list of its neighbour index[i, t].
  std::vector<uint8_t> mutual_of(const std::vector<int32_t>& index) const {
    // The lists turned around: the entries of all lists by the row that they hold.
    std::vector<int64_t> begin(n_ + 1), entries(n_ * k_);
    for (const int32_t j : index) begin[j + 1]++;
    for (int64_t j = 0; j < n_; j++) begin[j + 1] += begin[j];
    std::vector<int64_t> next(begin.begin(), begin.end() - 1);
    for (int64_t e = 0; e < n_ * k_; e++) entries[next[index[e]]++] = e;
    std::vector<uint8_t> mutual(n_ * k_), is_neighbour(n_);
    for (int64_t i = 0; i < n_; i++) {
      for (int64_t t = 0; t < k_; t++) is_neighbour[index[i * k_ + t]] = 1;
      for (int64_t e = begin[i]; e < begin[i + 1]; e++)
        mutual[entries[e]] = is_neighbour[entries[e] / k_];
      for (int64_t t = 0; t < k_; t++) is_neighbour[index[i * k_ + t]] = 0;
    }
    return mutual;
  }

  void compare(const Task& task, Workspace& work) {
    const Edges& first = edges_[task.a];
    if (!first.defined) return;
    for (int64_t b = task.begin; b < task.end; b++) work.sums[b - task.begin].clear();
    for (int64_t i = 0; i < n_; i++) {
      for (int64_t t = 0; t < k_; t++) work.places[first.index[i * k_ + t]] = int32_t(t + 1);
      for (int64_t b = task.begin; b < task.end; b++)
        if (edges_[b].defined)
          add_row(i, first, edges_[b], work.places.data(), work.sums[b - task.begin]);
      for (int64_t t = 0; t < k_; t++) work.places[first.index[i * k_ + t]] = 0;
    }
    for (int64_t b = task.begin; b < task.end; b++)
      if (edges_[b].defined) store(task.a, b, work.sums[b - task.begin]);
  }

  // Adds the common neighbours of row i.
  void add_row(int64_t i, const Edges& first, const Edges& second, const int32_t* places,
               Sums& sums) const {
    double row_a = 0, row_b = 0, common = 0;
    for (int64_t t = i * k_; t < (i + 1) * k_; t++) {
      const int32_t j = second.index[t];
      if (places[j] == 0) continue;
      const int64_t s = i * k_ + places[j] - 1;
      const double a = first.values[s], b = second.values[t];
      common++;
      row_a += a;
      row_b += b;
      sums.m.columns[j]++;
      sums.a.columns[j] += a;
      sums.b.columns[j] += b;
      if (!first.mutual[s] || !second.mutual[t]) continue;
      sums.trace_mm++;
      sums.trace_am += a;
      sums.trace_mb += b;
      sums.trace_ab += a * b;
    }
    add_total(sums.m, i, common);
    add_total(sums.a, i, row_a);
    add_total(sums.b, i, row_b);
  }

  static void add_total(Totals& totals, int64_t i, double row) {
    totals.rows[i] = row;
    totals.all += row;
  }

  // Stores the HSIC of layers a and b; of x with itself in both orders.
  void store(int64_t a, int64_t b, const Sums& sums) {
    const double there = hsic(sums, edges_[a].mean, edges_[b].mean, false);
    if (a == b) {
      if (a < count_x_) terms_.xx[a] = there;
      if (a >= first_y_) terms_.yy[a - first_y_] = there;
      if (symmetric_) terms_.xy[a * columns_ + a] = there;
      return;
    }
    terms_.xy[a * columns_ + b - first_y_] = there;
    if (!symmetric_) return;
    const bool same = estimator_ == Estimator::biased;
    terms_.xy[b * columns_ + a] = same ? there : hsic(sums, edges_[a].mean, edges_[b].mean, true);
  }

  // Returns the HSIC of A = mean_a M + A' and B = mean_b M + B', or of B and A if `back`.
  double hsic(const Sums& s, double mean_a, double mean_b, bool back) const {
    return mean_a * mean_b * hsic(s.m, s.m, s.trace_mm, back) +
           (mean_b * hsic(s.a, s.m, s.trace_am, back) + mean_a * hsic(s.m, s.b, s.trace_mb, back)) +
           hsic(s.a, s.b, s.trace_ab, back);
  }

  double hsic(const Totals& a, const Totals& b, double trace, bool back) const {
    const double n = double(n_);
    const double product = back ? dot(b.columns, a.rows) : dot(a.columns, b.rows);
    if (estimator_ == Estimator::unbiased)
      return hsic_unbiased({trace, 0, product}, a.all, b.all, n);
    return hsic_biased({trace, 0, (product + dot(b.columns, a.rows)) / 2}, a.all, b.all, n);
  }

  int64_t n_, k_, count_x_, first_y_, columns_;
  bool symmetric_;
  Estimator estimator_;
  const Runtime& rt_;
  std::vector<Edges> edges_;  // of x, then of y
  int64_t together_ = 1;
  CknnaTerms terms_;
};

}  // namespace

CknnaTerms cknna_terms(const NeighbourValues& x, const NeighbourValues& y, Estimator estimator,
                       int64_t max_memory, const Runtime& rt) {
  return Cknna(x, y, estimator, max_memory, rt).run();
}

}  // namespace simcore::cpu
