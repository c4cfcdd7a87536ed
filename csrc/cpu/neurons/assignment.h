// The assignment of least total cost: every row to a column of its own.
#pragma once

#include <cstdint>
#include <vector>

namespace simcore::cpu {

// A matrix of costs, rows <= columns; row i at data + i * stride. The stride is a multiple of
// IsaTable<T>::width, and the entries from `columns` on are `beyond()`.
template <typename T>
struct Costs {
  const T* data;
  int64_t rows, columns, stride;
  const T* row(int64_t i) const { return data + i * stride; }
  static T beyond();
};

// Solves one assignment after another; its memory serves all of them.
template <typename T>
class Assignment {
 public:
  explicit Assignment(int64_t most_columns);
  static int64_t bytes(int64_t most_columns);

  // Returns the column of each row, [rows].
  const std::vector<int64_t>& solve(const Costs<T>& costs);

 private:
  void take_least(const Costs<T>& costs);
  void improve(const Costs<T>& costs);
  void augment(const Costs<T>& costs, int64_t row);

  std::vector<double> prices_, open_prices_, lengths_, closed_lengths_;  // of columns
  std::vector<int64_t> row_of_, previous_, closed_;                      // of columns
  std::vector<int64_t> column_of_, free_;                                // of rows
};

}  // namespace simcore::cpu
