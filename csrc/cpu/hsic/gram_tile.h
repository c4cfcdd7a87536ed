// Geometry of a Gram tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/math/index_math.h"
#include "cpu/hsic/plan.h"

namespace simcore::cpu {

constexpr int64_t kTilePad = 48;  // keeps layers of G off the same cache sets

// The part of tile (I, J) above the diagonal, in column groups of `unit`. A group holds the rows
// that have an entry with j > i, row-major [rows][unit]; the same layout for every layer, so G is
// [L][entries] and the contraction never sees the triangle.
struct Tile {
  struct Group {
    int64_t column;  // first example of the group
    int64_t rows;    // multiple of the micro-kernel's rows
    int64_t offset;  // of its first entry in the tile
  };
  int64_t i0;
  int64_t rows = 0;     // most rows of any group
  int64_t entries = 0;  // of all groups
  std::vector<Group> groups;

  Tile(int64_t i0_, int64_t j0, int64_t n, const HsicPlan& plan, int64_t unit, int64_t mr)
      : i0(i0_) {
    const int64_t row_end = std::min(n, i0 + plan.tile_rows);
    const int64_t column_end = std::min(n, j0 + plan.tile_cols);
    for (int64_t column = j0; column < column_end; column += unit) {
      const int64_t needed = round_to(std::min(row_end, column + unit) - i0, mr);
      groups.push_back({column, needed, entries});
      rows = std::max(rows, needed);
      entries += needed * unit;
    }
  }
};

}  // namespace simcore::cpu
