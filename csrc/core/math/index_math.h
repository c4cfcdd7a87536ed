// Where things lie in tiles, panels and grids of blocks. All sizes are int64: a layer of 3 million
// rows and 768 columns has more than 2^31 elements.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/math/host_device.h"

namespace simcore {

SIMCORE_HD constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
SIMCORE_HD constexpr int64_t round_to(int64_t a, int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

struct Place {
  int64_t row, column;
};

// Cells of the upper triangle, diagonal included.
SIMCORE_HD constexpr int64_t triangle_size(int64_t side) {
  return side % 2 == 0 ? side / 2 * (side + 1) : (side + 1) / 2 * side;
}

// Cell `index` of the upper triangle, row by row.
SIMCORE_HD inline Place triangle_place(int64_t index, int64_t side) {
  // From the end the rows are 1, 2, 3, ... cells long: row q (from the end) starts at q (q + 1)
  // / 2.
  const int64_t back = triangle_size(side) - 1 - index;
  int64_t q = int64_t((std::sqrt(8.0 * double(back) + 1.0) - 1.0) / 2.0);
  while (triangle_size(q) > back) q--;  // the square root may be one off
  while (triangle_size(q + 1) <= back) q++;
  return {side - 1 - q, side - 1 - (back - triangle_size(q))};
}

// Cell `index` of a rectangle, row by row.
SIMCORE_HD constexpr Place rectangle_place(int64_t index, int64_t columns) {
  return {index / columns, index % columns};
}

}  // namespace simcore
