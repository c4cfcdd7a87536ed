// The algorithm of Jonker and Volgenant for matrices with at least as many columns as rows.
//
// Math      min sum_i c[i, column(i)]. With prices v_j <= 0, and 0 for columns that no row has, the
//           assignment is the best one if every row has the least of its c_ij - v_j.
// Plan      1. each row takes its least column, if that is free
//           2. twice: a free row takes its least column and lowers the price to where the second
//              least is as good; the row that had the column becomes free
//           3. a shortest path (Dijkstra) of reduced costs for every row that is left
// Cost      a pass over a row of costs for each row in 1, for each turn in 2, and for each column
//           that a path of 3 reaches. Random costs of 768 x 768: 1e4 to 3e4 passes of .1 us.
// Numerics  prices and lengths in float64; the result does not depend on the instruction set unless
//           two assignments have totals that float64 rounds alike.
// Source    Jonker and Volgenant 1987; rectangular: Crouse 2016.
// Twin      simcore/reference/matching.py:assignment
#include "cpu/neurons/assignment.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/math/index_math.h"
#include "cpu/isa/isa.h"

namespace simcore::cpu {
namespace {

constexpr int kSweeps = 2;
constexpr int64_t kTurns = 8;  // of a row in a sweep, at most on the average: rounding could go on
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

template <typename T>
T Costs<T>::beyond() {
  return std::numeric_limits<T>::max() / 4;
}

template <typename T>
Assignment<T>::Assignment(int64_t most_columns) {
  const int64_t padded = round_to(most_columns, isa_table<T>().width);
  for (auto* values : {&prices_, &open_prices_, &lengths_, &closed_lengths_})
    values->resize(padded);
  for (auto* values : {&row_of_, &previous_}) values->resize(padded);
}

template <typename T>
int64_t Assignment<T>::bytes(int64_t most_columns) {
  return 8 * 10 * round_to(most_columns, isa_table<T>().width);
}

template <typename T>
const std::vector<int64_t>& Assignment<T>::solve(const Costs<T>& costs) {
  std::fill(prices_.begin(), prices_.end(), 0.0);
  std::fill(row_of_.begin(), row_of_.end(), -1);
  column_of_.assign(costs.rows, -1);
  take_least(costs);
  for (int sweep = 0; sweep < kSweeps && !free_.empty(); sweep++) improve(costs);
  for (const int64_t row : free_) augment(costs, row);
  return column_of_;
}

template <typename T>
void Assignment<T>::take_least(const Costs<T>& costs) {
  free_.clear();
  for (int64_t i = 0; i < costs.rows; i++) {
    const LeastTwo found = isa_table<T>().least_two(costs.row(i), prices_.data(), costs.stride);
    if (row_of_[found.at] < 0)
      row_of_[found.at] = i, column_of_[i] = found.at;
    else
      free_.push_back(i);
  }
}

template <typename T>
void Assignment<T>::improve(const Costs<T>& costs) {
  std::vector<int64_t> left;
  int64_t turns = kTurns * costs.rows;
  for (size_t next = 0; next < free_.size(); next++) {
    int64_t i = free_[next];
    while (i >= 0) {
      if (turns-- <= 0) {
        left.push_back(i);
        break;
      }
      const LeastTwo found = isa_table<T>().least_two(costs.row(i), prices_.data(), costs.stride);
      // A row of one column has no second least: its price would fall without end.
      const double lower = prices_[found.at] - (found.second - found.least);
      const bool cheaper = costs.columns > 1 && lower < prices_[found.at];
      int64_t column = found.at;
      if (cheaper)
        prices_[column] = lower;
      else if (row_of_[column] >= 0 && found.second == found.least && costs.columns > 1)
        column = found.second_at;
      const int64_t had = row_of_[column];
      if (had >= 0 && !cheaper) {  // nothing is gained by a change
        left.push_back(i);
        break;
      }
      row_of_[column] = i, column_of_[i] = column;
      if (had >= 0) column_of_[had] = -1;
      i = had;
    }
  }
  free_ = std::move(left);
}

template <typename T>
void Assignment<T>::augment(const Costs<T>& costs, int64_t row) {
  std::copy(prices_.begin(), prices_.end(), open_prices_.begin());
  std::fill(lengths_.begin(), lengths_.end(), kInfinity);
  closed_.clear();
  int64_t i = row, sink = -1;
  double length = 0, offset = 0;
  while (true) {
    const Nearest found = isa_table<T>().relax(costs.row(i), open_prices_.data(), costs.stride,
                                               offset, i, lengths_.data(), previous_.data());
    length = found.length;
    if (row_of_[found.at] < 0) {
      sink = found.at;
      break;
    }
    // A closed column is out of reach: its price makes every way to it infinite.
    closed_.push_back(found.at);
    closed_lengths_[found.at] = length;
    lengths_[found.at] = kInfinity;
    open_prices_[found.at] = -kInfinity;
    i = row_of_[found.at];
    offset = length - (double(costs.row(i)[found.at]) - prices_[found.at]);
  }
  for (const int64_t column : closed_) prices_[column] += closed_lengths_[column] - length;
  while (true) {
    const int64_t from = previous_[sink];
    row_of_[sink] = from;
    std::swap(column_of_[from], sink);
    if (from == row) break;
  }
}

template struct Costs<float>;
template struct Costs<double>;
template class Assignment<float>;
template class Assignment<double>;

}  // namespace simcore::cpu
