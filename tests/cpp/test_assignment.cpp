// Assignments and their inner loops against plain loops.
#include "cpu/neurons/assignment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "core/math/index_math.h"
#include "cpu/isa/isa.h"

namespace {
using namespace simcore::cpu;

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

int main(int count, char** arguments) { return check::main(count, arguments); }
