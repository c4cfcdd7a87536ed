// Assignments, and layers whose neurons are matched, against plain loops.
#include "cpu/neurons/matching.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "check.h"
#include "core/math/index_math.h"
#include "cpu/isa/isa.h"
#include "cpu/neurons/assignment.h"
#include "naive.h"

namespace {
using simcore::LayersProblem;
using namespace simcore::cpu;
using naive::DType;
using naive::Layer;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
struct Matrix {
  int64_t rows, columns, stride;
  std::vector<T> data;

  Matrix(int64_t rows_, int64_t columns_)
      : rows(rows_),
        columns(columns_),
        stride(simcore::round_to(columns, isa_table<T>().width)),
        data(rows * stride, Costs<T>::beyond()) {}
  T& at(int64_t i, int64_t j) { return data[i * stride + j]; }
  Costs<T> view() const { return {data.data(), rows, columns, stride}; }
};

// The Hungarian method with potentials, one row after another: the least total cost.
template <typename T>
double least_total(const Matrix<T>& costs) {
  const int64_t n = costs.rows, m = costs.columns;
  std::vector<double> of_rows(n + 1), of_columns(m + 1);
  std::vector<int64_t> row_of(m + 1), came(m + 1);
  for (int64_t i = 1; i <= n; i++) {
    std::vector<double> lengths(m + 1, kInfinity);
    std::vector<bool> used(m + 1);
    int64_t column = 0;
    row_of[0] = i;
    do {
      used[column] = true;
      const int64_t row = row_of[column];
      double step = kInfinity;
      int64_t next = 0;
      for (int64_t j = 1; j <= m; j++) {
        if (used[j]) continue;
        const double reduced =
            double(costs.data[(row - 1) * costs.stride + j - 1]) - of_rows[row] - of_columns[j];
        if (reduced < lengths[j]) lengths[j] = reduced, came[j] = column;
        if (lengths[j] < step) step = lengths[j], next = j;
      }
      for (int64_t j = 0; j <= m; j++)
        if (used[j])
          of_rows[row_of[j]] += step, of_columns[j] -= step;
        else
          lengths[j] -= step;
      column = next;
    } while (row_of[column] != 0);
    for (; column != 0; column = came[column]) row_of[column] = row_of[came[column]];
  }
  double total = 0;
  for (int64_t j = 1; j <= m; j++)
    if (row_of[j] > 0) total += double(costs.data[(row_of[j] - 1) * costs.stride + j - 1]);
  return total;
}

template <typename T>
void check_assignment(Assignment<T>& solver, const Matrix<T>& costs) {
  const std::vector<int64_t>& found = solver.solve(costs.view());
  std::vector<bool> taken(costs.columns);
  double total = 0, largest = 0;
  CHECK(int64_t(found.size()) == costs.rows);
  for (int64_t i = 0; i < costs.rows; i++) {
    CHECK(found[i] >= 0 && found[i] < costs.columns && !taken[found[i]]);
    taken[found[i]] = true;
    total += double(costs.data[i * costs.stride + found[i]]);
    largest = std::max(largest, std::abs(double(costs.data[i * costs.stride + found[i]])));
  }
  CHECK_NEAR(total, least_total(costs), 1e-11 * double(costs.rows) * (largest + 1e-300));
}

template <typename T>
void check_assignments() {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> few(-2, 2);
  Assignment<T> solver(200);
  for (const auto& [rows, columns] :
       {std::pair(1, 1), std::pair(1, 7), std::pair(2, 2), std::pair(5, 5), std::pair(17, 40),
        std::pair(64, 64), std::pair(120, 121), std::pair(150, 200)})
    for (int kind = 0; kind < 6; kind++) {
      check::context =
          std::to_string(rows) + " x " + std::to_string(columns) + ", kind " + std::to_string(kind);
      Matrix<T> costs(rows, columns);
      std::vector<double> shared(columns);
      for (double& value : shared) value = normal(random);
      for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
          const double noise = normal(random);
          const double value = kind == 0   ? noise
                               : kind == 1 ? few(random)               // ties
                               : kind == 2 ? 3.0                       // nothing but ties
                               : kind == 3 ? shared[j] + 1e-3 * noise  // all want the same columns
                               : kind == 4 ? 1e6 + noise
                                           : (i == j ? -9.0 : noise);
          costs.at(i, j) = T(value);
        }
      check_assignment(solver, costs);
    }
}

double mean_of(const Layer& x, int64_t k) {
  double sum = 0;
  for (int64_t i = 0; i < x.n; i++) sum += x.at(i, k) - x.at(0, k);
  return x.at(0, k) + sum / double(x.n);
}

double correlation(const Layer& x, int64_t k, const Layer& y, int64_t l) {
  const double mean_x = mean_of(x, k), mean_y = mean_of(y, l);
  double xy = 0, xx = 0, yy = 0;
  for (int64_t i = 0; i < x.n; i++) {
    const double a = x.at(i, k) - mean_x, b = y.at(i, l) - mean_y;
    xy += a * b, xx += a * a, yy += b * b;
  }
  return xy / std::sqrt(xx * yy);
}

// The value by its definition.
double wanted(const Layer& x, const Layer& y, Matching matching, MatchScore score) {
  if (x.view.width > y.view.width) return wanted(y, x, matching, score);
  const int64_t p = x.view.width, q = y.view.width;
  double square_x = 0, square_y = 0;
  for (const double value : x.values) square_x += value * value;
  for (const double value : y.values) square_y += value * value;
  const bool angular = score == MatchScore::angular;
  const double scale_x = angular ? 1 / std::sqrt(square_x) : 1;
  const double scale_y = angular ? 1 / std::sqrt(square_y) : 1;
  Matrix<double> costs(p, q);
  double unmatched = 0;
  for (int64_t l = 0; l < q; l++) {
    double square = 0;
    for (int64_t i = 0; i < x.n; i++) square += std::pow(y.at(i, l) * scale_y, 2);
    unmatched += square;
    for (int64_t k = 0; k < p; k++) {
      if (score == MatchScore::correlation) {
        costs.at(k, l) = -correlation(x, k, y, l);
        continue;
      }
      // What matching adds to the squares of all columns of y: these are then counted once.
      double gap = -square;
      for (int64_t i = 0; i < x.n; i++)
        gap += std::pow(x.at(i, k) * scale_x - y.at(i, l) * scale_y, 2);
      costs.at(k, l) = gap;
    }
  }
  if (matching == Matching::best) {
    double rows = 0, columns = 0;
    for (int64_t k = 0; k < p; k++)
      rows += *std::min_element(&costs.at(k, 0), &costs.at(k, 0) + q) / double(p);
    for (int64_t l = 0; l < q; l++) {
      double least = kInfinity;
      for (int64_t k = 0; k < p; k++) least = std::min(least, costs.at(k, l));
      columns += least / double(q);
    }
    return -(rows + columns) / 2;
  }
  const double total = least_total(costs);
  if (score == MatchScore::correlation) return -total / double(p);
  const double length = std::sqrt(std::max(0.0, total + unmatched));
  return angular ? 2 * std::asin(std::min(length / 2, 1.0)) : length;
}

constexpr std::pair<Matching, MatchScore> kForms[] = {
    {Matching::best, MatchScore::correlation},
    {Matching::one_to_one, MatchScore::correlation},
    {Matching::one_to_one, MatchScore::distance},
    {Matching::one_to_one, MatchScore::angular},
};

}  // namespace

TEST(inner_loops_match_plain_loops) {
  const int64_t count = 3 * isa_table<float>().width;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<float> costs(count);
  std::vector<double> prices(count), lengths(count, 0.4);
  std::vector<int64_t> previous(count, -7);
  for (float& cost : costs) cost = float(normal(random));
  for (double& price : prices) price = normal(random) / 4;
  prices[3] = -kInfinity;
  const LeastTwo two = isa_table<float>().least_two(costs.data(), prices.data(), count);
  std::vector<double> values;
  for (int64_t j = 0; j < count; j++) values.push_back(double(costs[j]) - prices[j]);
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  CHECK(two.least == sorted[0] && values[two.at] == sorted[0]);
  CHECK(two.second == sorted[1] && values[two.second_at] == sorted[1]);
  const Nearest nearest = isa_table<float>().relax(costs.data(), prices.data(), count, 0.25, 11,
                                                   lengths.data(), previous.data());
  for (int64_t j = 0; j < count; j++) {
    const bool shorter = values[j] + 0.25 < 0.4;
    CHECK(lengths[j] == (shorter ? values[j] + 0.25 : 0.4));
    CHECK(previous[j] == (shorter ? 11 : -7));
  }
  CHECK(nearest.length == sorted[0] + 0.25 && nearest.at == two.at);
  std::fill(prices.begin(), prices.end(), -kInfinity);
  std::fill(lengths.begin(), lengths.end(), kInfinity);
  CHECK(isa_table<float>()
            .relax(costs.data(), prices.data(), count, 0, 1, lengths.data(), previous.data())
            .at < 0);
}

TEST(assignments_have_the_least_total) {
  check_assignments<float>();
  check_assignments<double>();
}

TEST(matched_layers_match_the_definitions) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double offset : {0.0, 1000.0})
      for (const int64_t n : {2, 33}) {
        const naive::Shape shape{dtype, offset, 30, naive::Order::reversed};
        const auto x = naive::make_layers(n, {5, 60, 1}, 1, shape);
        const auto y = naive::make_layers(n, {60, 7}, 9, {dtype, offset, 1, naive::Order::columns});
        for (const auto& [matching, score] : kForms) {
          check::context = "n " + std::to_string(n) + ", score " + std::to_string(int(score)) +
                           ", offset " + std::to_string(offset);
          for (const bool cross : {false, true}) {
            LayersProblem problem{n, naive::views(x), {}};
            if (cross) problem.y = naive::views(y);
            const auto& others = cross ? y : x;
            const auto got = match_neurons(problem, matching, score, 0, naive::threads(3));
            CHECK(got == match_neurons(problem, matching, score, 0, Runtime::serial()));
            for (size_t a = 0; a < x.size(); a++)
              for (size_t b = 0; b < others.size(); b++) {
                const double value = got[a * others.size() + b];
                const double want = wanted(x[a], others[b], matching, score);
                double unit = 1;
                if (score == MatchScore::distance)
                  for (const double entry : x[a].values) unit += entry * entry;
                if (!cross && a == b) {
                  CHECK(value == (score == MatchScore::correlation ? 1 : 0));
                } else if (score == MatchScore::correlation) {
                  CHECK_NEAR(value, want, dtype == DType::f64 ? 1e-11 : 1e-5);
                } else if (score == MatchScore::angular) {
                  CHECK_NEAR(std::cos(value), std::cos(want), dtype == DType::f64 ? 1e-11 : 1e-6);
                } else {
                  CHECK_NEAR(value * value, want * want,
                             (dtype == DType::f64 ? 1e-10 : 1e-6) * unit);
                }
              }
          }
        }
      }
}

TEST(neurons_and_layers_without_variance) {
  auto x = naive::make_layers(20, {6, 4, 3}, 1, {DType::f32, 2});
  for (int64_t i = 0; i < 20; i++) x[0].values[i * 6 + 2] = x[0].values[i * 6 + 5] = 0.3;
  std::fill(x[1].values.begin(), x[1].values.end(), 0.0);
  for (Layer& layer : x) naive::lay_out(layer, naive::Order::rows);
  const LayersProblem problem{20, naive::views(x), {}};
  const auto match = [&](Matching matching, MatchScore score) {
    return match_neurons(problem, matching, score, 0, naive::threads(2));
  };
  const auto hard = match(Matching::one_to_one, MatchScore::correlation);
  const auto angle = match(Matching::one_to_one, MatchScore::angular);
  const auto distance = match(Matching::one_to_one, MatchScore::distance);
  for (const auto& grid : {hard, angle}) CHECK(std::isnan(grid[1]) && std::isnan(grid[4]));
  CHECK(hard[0] == 1 && distance[4] == 0 && distance[1] > 1);
  double best = 0;  // three neurons of x[2] with four of x[0] that vary
  std::vector<int64_t> varying{0, 1, 3, 4};
  do {
    double mean = 0;
    for (int64_t k = 0; k < 3; k++) mean += correlation(x[2], k, x[0], varying[k]) / 3;
    best = std::max(best, mean);
  } while (std::next_permutation(varying.begin(), varying.end()));
  CHECK_NEAR(hard[2], best, 1e-5);
  x[2].values[7] = INFINITY;
  naive::lay_out(x[2], naive::Order::rows);
  for (const auto& [matching, score] : kForms)
    CHECK(check::message_of([&] { match(matching, score); }) ==
          "X[2]: wanted finite values, got 1 NaN or infinite of 60");
}

TEST(memory_and_scale_leave_the_result_alone) {
  const auto x = naive::make_layers(40, {30, 9, 50, 4}, 1, {DType::f64, 1});
  const LayersProblem problem{40, naive::views(x), {}};
  for (const auto& [matching, score] : kForms) {
    const auto want = match_neurons(problem, matching, score, 0, naive::threads(2));
    int64_t limit = 1 << 24;
    while (check::message_of([&] {
             CHECK(match_neurons(problem, matching, score, limit, naive::threads(2)) == want);
           }).empty())
      limit /= 2;
    CHECK(limit < 1 << 21);
    for (const int exponent : {-1000, 1000}) {
      std::vector<Layer> scaled = x;
      for (Layer& layer : scaled) {
        for (double& value : layer.values) value = std::ldexp(value, exponent);
        naive::lay_out(layer, naive::Order::rows);
      }
      if (score == MatchScore::correlation) continue;  // scaled in Python
      const auto got =
          match_neurons({40, naive::views(scaled), {}}, matching, score, 0, naive::threads(2));
      for (size_t i = 0; i < got.size(); i++)
        CHECK_NEAR(score == MatchScore::distance ? std::ldexp(got[i], -exponent) : got[i], want[i],
                   1e-12 * (1 + want[i]));
    }
  }
}

int main(int count, char** arguments) { return check::main(count, arguments); }
