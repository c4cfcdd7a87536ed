// The lengths of the centred columns of all layers.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "cpu/base/buffer.h"
#include "cpu/isa/isa.h"
#include "cpu/products/column_plan.h"
#include "cpu/products/grid.h"

namespace simcore::cpu {

struct Norms {
  std::vector<int64_t> offset;  // [L + 1] of a layer's first column
  std::vector<double> inverse;  // [columns] 1 / ||x_k||, 0 for a constant column
};

template <typename T>
Norms column_norms(const Grid<T>& grid, const TilePlan& plan, const Runtime& rt) {
  const IsaTable<T>& isa = isa_table<T>();
  Norms norms;
  norms.offset.push_back(0);
  for (const LayerView& layer : grid.layers)
    norms.offset.push_back(norms.offset.back() + layer.width);
  norms.inverse.resize(norms.offset.back());
  std::vector<std::unique_ptr<Buffer<T>>> panels;
  for (int t = 0; t < rt.threads; t++)
    panels.push_back(std::make_unique<Buffer<T>>(plan.depth * isa.width));
  parallel_tasks(rt, grid.count(), [&](int64_t l, int thread) {
    T* panel = panels[thread]->data();
    for (int64_t c = 0; c < grid.layers[l].width; c += isa.width) {
      const int64_t columns = std::min<int64_t>(isa.width, grid.layers[l].width - c);
      double squares[kMaxUnit] = {};
      for (int64_t row = 0; row < grid.n; row += plan.depth) {
        const int64_t rows = std::min(plan.depth, grid.n - row);
        isa.pack_columns(grid.layers[l], grid.centring[l], row, rows, c, columns, panel,
                         plan.depth * isa.width);
        for (int64_t i = 0; i < rows; i++)
          for (int64_t k = 0; k < columns; k++)
            squares[k] += double(panel[i * isa.width + k]) * double(panel[i * isa.width + k]);
      }
      for (int64_t k = 0; k < columns; k++)
        norms.inverse[norms.offset[l] + c + k] = squares[k] > 0 ? 1 / std::sqrt(squares[k]) : 0;
    }
  });
  return norms;
}

}  // namespace simcore::cpu
