// Index helpers of the CUDA kernels at sizes that 32 bits do not hold.
#include "core/math/index_math.h"

#include "check.h"
#include "core/math/rbf_math.h"

using simcore::ceil_div;
using simcore::Place;
using simcore::rectangle_place;
using simcore::round_to;
using simcore::triangle_place;
using simcore::triangle_size;

TEST(every_cell_of_small_triangles_is_met_in_order) {
  for (int64_t side = 1; side <= 40; side++) {
    int64_t index = 0;
    for (int64_t row = 0; row < side; row++)
      for (int64_t column = row; column < side; column++, index++) {
        const Place place = triangle_place(index, side);
        CHECK(place.row == row && place.column == column);
      }
    CHECK(triangle_size(side) == index);
  }
}

TEST(triangles_of_more_than_two_to_the_31_cells) {
  for (const int64_t side : {int64_t(65536), int64_t(100003), int64_t(2000000011)}) {
    check::context = "side " + std::to_string(side);
    const int64_t cells = triangle_size(side);
    CHECK(cells > int64_t(1) << 31);
    // First and last cells of rows at both ends and in the middle.
    for (const int64_t row : {int64_t(0), int64_t(1), side / 3, side / 2, side - 2, side - 1}) {
      // row * (2 * side - row + 1) is even and within 64 bits for these sides
      const int64_t start =
          row % 2 == 0 ? row / 2 * (2 * side - row + 1) : (2 * side - row + 1) / 2 * row;
      const Place first = triangle_place(start, side);
      const Place last = triangle_place(start + side - row - 1, side);
      CHECK(first.row == row && first.column == row);
      CHECK(last.row == row && last.column == side - 1);
    }
    const Place end = triangle_place(cells - 1, side);
    CHECK(end.row == side - 1 && end.column == side - 1);
  }
}

TEST(rectangles_and_rounding_beyond_32_bits) {
  const int64_t columns = 3000000001;
  const Place place = rectangle_place(5 * columns + 7, columns);
  CHECK(place.row == 5 && place.column == 7);
  CHECK(ceil_div((int64_t(1) << 40) + 1, 1 << 20) == (1 << 20) + 1);
  CHECK(round_to((int64_t(1) << 40) + 1, 64) == (int64_t(1) << 40) + 64);
  CHECK(ceil_div(0, 5) == 0 && round_to(65, 64) == 128 && round_to(64, 64) == 64);
}

TEST(rows_of_the_median_rule) {
  const simcore::MedianRule small(5), even(4), many(100000);
  CHECK(small.rows == 5 && small.first == 3 && small.second == 3 && !small.halved);
  CHECK(even.rows == 4 && even.first == 1 && even.second == 2 && !even.halved);
  CHECK(many.step == 25 && many.rows == 4000);
  CHECK(simcore::MedianRule(2).halved && simcore::MedianRule(2).second == 0);
}

int main() { return check::main(); }
