// The traversal behind all computations with products of columns, Xc_a^T Xc_b: HSIC in feature
// space, neuron-level correlations, projections. No product is ever held whole.
//
// Plan      for each block F of tile_rows columns of a layer a: centre and pack F over all n rows
//             for each block of tile_cols columns of every layer b wanted with a:   one task each
//               product [tile_rows, tile_cols], the depth (examples) in chunks packed as needed
//               consume it while it is in cache
//             finish the block: merge what the tasks left, in order
// Cost      2 n flops per entry of a product; an entry of b is packed once per tile_rows columns
//           of a.
// Numerics  products in T over `depth` examples, then float64.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/base/buffer.h"
#include "cpu/isa/isa.h"
#include "cpu/products/column_plan.h"
#include "cpu/products/grid.h"

namespace simcore::cpu {

struct ProductBlock {
  int64_t layer, column, columns;  // columns [column, column + columns) of a layer
};

template <typename T>
class ColumnProducts {
 public:
  ColumnProducts(const Grid<T>& grid, const TilePlan& plan, const Runtime& rt)
      : grid_(grid),
        plan_(plan),
        rt_(rt),
        isa_(isa_table<T>()),
        unit_(kMaxPanels * isa_.width),
        left_(plan.tile_rows * grid.n) {
    for (int t = 0; t < rt.threads; t++) scratch_.push_back(std::make_unique<Scratch>(plan));
  }

  // wanted(left, b, column of b): how many columns of `left`, from its first on, are multiplied
  //   with that block of b; 0 for none.
  // consume(left, right, index, product): product [left.columns, tile_cols] row-major float64, of
  //   the wanted columns; called by several threads, index numbers the tasks of a block from 0.
  // finish(left, rights): after all tasks of a block, on the calling thread.
  template <typename Wanted, typename Consume, typename Finish>
  void run(const Wanted& wanted, const Consume& consume, const Finish& finish) {
    int64_t done = 0, total = 0;
    for (const LayerView& layer : grid_.layers) total += layer.width;
    for (int64_t a = 0; a < grid_.count(); a++) {
      for (int64_t f = 0; f < grid_.layers[a].width; f += plan_.tile_rows) {
        const ProductBlock left{a, f, std::min(plan_.tile_rows, grid_.layers[a].width - f)};
        std::vector<ProductBlock> rights;
        std::vector<int64_t> of_left;
        for (int64_t b = 0; b < grid_.count(); b++)
          for (int64_t c = 0; c < grid_.layers[b].width; c += plan_.tile_cols)
            if (const int64_t columns = wanted(left, b, c); columns > 0) {
              rights.push_back({b, c, std::min(plan_.tile_cols, grid_.layers[b].width - c)});
              of_left.push_back(columns);
            }
        done += left.columns;
        if (!rights.empty()) {
          pack_left(left);
          parallel_tasks(rt_, int64_t(rights.size()), [&](int64_t t, int thread) {
            const ProductBlock part{a, f, of_left[t]};
            multiply(part, rights[t], *scratch_[thread]);
            consume(part, rights[t], t, scratch_[thread]->product.data());
          });
          finish(left, rights);
        }
        if (rt_.progress) rt_.progress(double(done) / double(total));
      }
    }
  }

 private:
  struct Scratch {
    Buffer<T> right;         // [tile columns][depth] in panels
    Buffer<double> product;  // [tile_rows, tile_cols]
    explicit Scratch(const TilePlan& plan)
        : right(plan.tile_cols * plan.depth), product(plan.tile_rows * plan.tile_cols) {}
  };

  // Packs left_ = panels [columns / width][n][width].
  void pack_left(const ProductBlock& left) {
    const int64_t w = isa_.width, chunks = (grid_.n + plan_.depth - 1) / plan_.depth;
    parallel_tasks(rt_, chunks, [&](int64_t chunk, int) {
      const int64_t row = chunk * plan_.depth, rows = std::min(plan_.depth, grid_.n - row);
      isa_.pack_columns(grid_.layers[left.layer], grid_.centring[left.layer], row, rows,
                        left.column, left.columns, left_.data() + row * w, grid_.n * w);
    });
  }

  void multiply(const ProductBlock& left, const ProductBlock& right, Scratch& scratch) {
    const int64_t w = isa_.width;
    double* product = scratch.product.data();
    std::fill(product, product + plan_.tile_rows * plan_.tile_cols, 0.0);
    for (int64_t row = 0; row < grid_.n; row += plan_.depth) {
      const int64_t depth = std::min(plan_.depth, grid_.n - row);
      isa_.pack_columns(grid_.layers[right.layer], grid_.centring[right.layer], row, depth,
                        right.column, right.columns, scratch.right.data(), depth * w);
      // The micro-kernel takes whole groups of panels.
      std::fill(scratch.right.data() + round_to(right.columns, w) * depth,
                scratch.right.data() + round_to(right.columns, unit_) * depth, T(0));
      add_product(left.columns, right.columns, row, depth, scratch);
    }
  }

  void add_product(int64_t left_columns, int64_t columns, int64_t row, int64_t depth,
                   Scratch& scratch) {
    const int64_t w = isa_.width, tile = plan_.tile_cols;
    alignas(64) T block[kMaxUnit * kMaxUnit];
    // Column i is lane i % w of panel i / w. A panel of the left is [n][w], of which `depth` rows
    // from `row` on are read; one of the right holds these rows alone.
    for (int64_t j = 0; j < columns; j += unit_)
      for (int64_t i = 0; i < left_columns; i += isa_.mr) {
        isa_.micro[kMaxPanels - 1](left_.data() + i / w * w * grid_.n + row * w + i % w,
                                   scratch.right.data() + j * depth, w * depth, depth, block, unit_,
                                   false);
        isa_.add_block(block, isa_.mr, unit_, scratch.product.data() + i * tile + j, tile);
      }
  }

  const Grid<T>& grid_;
  const TilePlan& plan_;
  const Runtime& rt_;
  const IsaTable<T>& isa_;
  int64_t unit_;
  Buffer<T> left_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // one per thread
};

}  // namespace simcore::cpu
