// Prepares the layers, runs the planned path, and turns its sums into HSIC values; the uniformity
// of layers (twin: simcore/reference/rowwise.py:uniformity) comes from row sums of the same Grams.
#include "cpu/hsic/hsic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/hsic/sums.h"

namespace simcore::cpu {
namespace {

double dot(const double* a, const double* b, int64_t n) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int r = 0; r < 8; r++) sums[r] += a[i + r] * b[i + r];
  for (; i < n; i++) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double total(const double* a, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i];
  return sum;
}

// The row sums that the estimator asks for, [L, n]: without the diagonal for the unbiased one,
// with it for the others. Empty: all zero (linear: centred features).
std::vector<double> estimator_rows(const GridSums& sums, Estimator estimator, bool linear) {
  if (linear && estimator != Estimator::unbiased) return {};
  std::vector<double> rows(sums.diag.size());
  for (size_t i = 0; i < rows.size(); i++) {
    const double off = linear ? -sums.diag[i] : sums.rows[i];
    rows[i] = estimator == Estimator::unbiased ? off : off + sums.diag[i];
  }
  return rows;
}

template <typename T>
class Assembler {
 public:
  // scale: null for the linear kernel
  Assembler(const Grid<T>& grid, const GridSums& sums, const HsicProblem& problem,
            const KernelScale* scale)
      : grid_(grid),
        sums_(sums),
        estimator_(problem.estimator),
        kernel_(problem.kernel),
        scale_(scale),
        rows_(estimator_rows(sums, problem.estimator, scale == nullptr)),
        totals_(grid.count()) {
    if (rows_.empty()) return;
    for (int64_t l = 0; l < grid.count(); l++) totals_[l] = total(&rows_[l * grid.n], grid.n);
  }

  // a <= b
  double hsic(int64_t a, int64_t b) const {
    const int64_t n = grid_.n;
    PairSums pair{sums_.offdiag[a * grid_.count() + b],
                  dot(&sums_.diag[a * n], &sums_.diag[b * n], n), 0.0};
    if (!rows_.empty()) pair.row_dot = dot(&rows_[a * n], &rows_[b * n], n);
    // The features were scaled by 2^-exponent.
    const int exponent = grid_.centring[a].exponent + grid_.centring[b].exponent;
    return std::ldexp(estimate(pair, a, b), degree(kernel_) * exponent);
  }

 private:
  double estimate(const PairSums& pair, int64_t a, int64_t b) const {
    const double n = double(grid_.n);
    if (estimator_ == Estimator::biased) return hsic_biased(pair, totals_[a], totals_[b], n);
    if (estimator_ == Estimator::unbiased) return hsic_unbiased(pair, totals_[a], totals_[b], n);
    return gram_product(pair, totals_[a], totals_[b], shift(a), shift(b), n);
  }

  double shift(int64_t layer) const { return scale_ == nullptr ? 0 : scale_->shifts[layer]; }

  const Grid<T>& grid_;
  const GridSums& sums_;
  Estimator estimator_;
  KernelKind kernel_;
  const KernelScale* scale_;
  std::vector<double> rows_;    // [L, n] or empty
  std::vector<double> totals_;  // [L]
};

template <typename T>
HsicResult assemble(const Grid<T>& grid, const GridSums& sums, const HsicProblem& problem,
                    const Runtime& rt, const KernelScale* scale = nullptr) {
  const Assembler<T> assembler(grid, sums, problem, scale);
  const int64_t count_x = grid.count_x;
  const int64_t count_y = grid.symmetric ? count_x : grid.count() - count_x;
  const int64_t offset_y = grid.symmetric ? 0 : count_x;
  HsicResult result;
  result.squares = sums.squares;
  result.cubes = sums.cubes;
  for (const Centring<T>& centring : grid.centring) result.exponents.push_back(centring.exponent);
  result.xy.resize(count_x * count_y);
  result.xx.resize(count_x);
  result.yy.resize(count_y);
  parallel_tasks(rt, count_x, [&](int64_t i, int) {
    for (int64_t j = grid.symmetric ? i : 0; j < count_y; j++) {
      const double value = assembler.hsic(i, offset_y + j);
      result.xy[i * count_y + j] = value;
      if (grid.symmetric) result.xy[j * count_y + i] = value;
    }
    result.xx[i] = assembler.hsic(i, i);
  });
  parallel_tasks(rt, count_y, [&](int64_t j, int) {
    result.yy[j] = assembler.hsic(offset_y + j, offset_y + j);
  });
  return result;
}

template <typename T>
HsicResult run(const HsicProblem& problem, const HsicPlan& plan, const Runtime& rt) {
  const Grid<T> grid = make_grid<T>(problem, rt);
  if (plan.method == Method::feature)
    return assemble(grid, feature_sums(grid, plan, rt), problem, rt);
  if (problem.kernel == KernelKind::linear)
    return assemble(grid, gram_sums<T>(grid, nullptr, plan, rt), problem, rt);
  const KernelScale scale = problem.kernel == KernelKind::rbf
                                ? median_bandwidths(grid, problem.bandwidth, rt)
                                : distance_scale(grid);
  return assemble(grid, gram_sums(grid, &scale, plan, rt), problem, rt, &scale);
}

constexpr double kUniformity = 2;  // Wang & Isola 2020

template <typename T>
std::vector<double> log_potentials(const LayersProblem& problem, const HsicPlan& plan,
                                   const Runtime& rt) {
  const Grid<T> grid = make_grid<T>(problem, rt);
  KernelScale scale;
  scale.shifts.assign(grid.count(), 0.0);
  for (const Centring<T>& centring : grid.centring)
    scale.gammas.push_back(std::min(std::ldexp(kUniformity, 2 * centring.exponent),
                                    double(std::numeric_limits<T>::max())));
  const std::vector<double> rows = gram_sums(grid, &scale, plan, rt).rows;
  std::vector<double> result;
  const double n = double(grid.n);
  for (int64_t l = 0; l < grid.count(); l++)
    result.push_back(std::log((n + total(&rows[l * grid.n], grid.n)) / (n * n)));
  return result;
}

template <typename T>
std::vector<double> medians(const LayersProblem& problem, const Runtime& rt) {
  const Grid<T> grid = make_grid<T>(problem, rt);
  std::vector<double> result = median_bandwidths(grid, 1.0, rt).gammas;
  // gamma = 1 / (2 median) of features scaled by 2^-exponent
  for (int64_t l = 0; l < grid.count(); l++)
    result[l] = std::ldexp(0.5 / result[l], 2 * grid.centring[l].exponent);
  return result;
}

}  // namespace

std::vector<double> median_squared_distances(const LayersProblem& problem, const Runtime& rt) {
  return problem.has_float64() ? medians<double>(problem, rt) : medians<float>(problem, rt);
}

std::vector<double> uniformity(const LayersProblem& problem, const HsicPlan& plan,
                               const Runtime& rt) {
  return plan.float64 ? log_potentials<double>(problem, plan, rt)
                      : log_potentials<float>(problem, plan, rt);
}

HsicResult hsic_terms(const HsicProblem& problem, const HsicPlan& plan, const Runtime& rt) {
  return plan.float64 ? run<double>(problem, plan, rt) : run<float>(problem, plan, rt);
}

}  // namespace simcore::cpu
