// The contraction of Gram entries over layers, S += G G^T: its blocks, and one thread's share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/base/buffer.h"
#include "cpu/isa/isa.h"

namespace simcore::cpu {

constexpr int64_t kContractDepth = 256;  // entries per product before its sum goes to float64

// The blocks of the [L, L] matrix S that are computed, in panels of `width` layers; y starts on a
// new panel so that no block mixes x and y.
struct ContractionPlan {
  struct Block {
    int64_t j, panels;       // column panels [j, j + panels)
    int64_t i_begin, i_end;  // row panels
  };
  int64_t count_x, count_y, width, panels_x, panels_all, depth;
  std::vector<Block> blocks;

  ContractionPlan(int64_t count_x_, int64_t count_y_, int64_t width_)
      : count_x(count_x_),
        count_y(count_y_),
        width(width_),
        panels_x((count_x + width - 1) / width),
        panels_all(panels_x + (count_y + width - 1) / width),
        depth(kContractDepth) {
    const auto groups = [&](int64_t begin, int64_t end, auto add) {
      for (int64_t j = begin; j < end; j += kMaxPanels)
        add(j, std::min<int64_t>(kMaxPanels, end - j));
    };
    if (count_y == 0) {
      groups(0, panels_x, [&](int64_t j, int64_t m) { blocks.push_back({j, m, 0, j + m}); });
      return;
    }
    groups(panels_x, panels_all,
           [&](int64_t j, int64_t m) { blocks.push_back({j, m, 0, panels_x}); });
    for (int64_t q = 0; q < panels_all; q++) blocks.push_back({q, 1, q, q + 1});
  }

  int64_t row(int64_t layer) const {
    return layer < count_x ? layer : panels_x * width + (layer - count_x);
  }
  int64_t size() const { return panels_all * width; }
  int64_t at(int64_t a, int64_t b) const { return row(a) * size() + row(b); }
};

// One thread's share of S, and the panels it packs a chunk of G into.
template <typename T>
class ContractionSlot {
 public:
  explicit ContractionSlot(const ContractionPlan& plan)
      : sums_(plan.size() * plan.size()), packed_(plan.size() * plan.depth) {}

  // S += G G^T over `depth` entries of every layer, gram[l * stride + k].
  void add(const ContractionPlan& plan, const T* gram, int64_t stride, int64_t depth) {
    const IsaTable<T>& isa = isa_table<T>();
    const int64_t w = plan.width, panel = w * depth;
    for (int64_t q = 0; q < plan.panels_all; q++) {
      const bool in_x = q < plan.panels_x;
      const int64_t first = in_x ? q * w : plan.count_x + (q - plan.panels_x) * w;
      const int64_t end = in_x ? plan.count_x : plan.count_x + plan.count_y;
      isa.pack_plain(gram + first * stride, stride, std::min(w, end - first), depth,
                     packed_.data() + q * panel);
    }
    alignas(64) T block[kMaxUnit * kMaxUnit];
    for (const ContractionPlan::Block& b : plan.blocks) {
      const int64_t columns = b.panels * w;
      for (int64_t i = b.i_begin * w; i < b.i_end * w; i += isa.mr) {
        isa.micro[b.panels - 1](packed_.data() + i / w * panel + i % w,
                                packed_.data() + b.j * panel, panel, depth, block, columns, false);
        isa.add_block(block, isa.mr, columns, sums_.data() + i * plan.size() + b.j * w,
                      plan.size());
      }
    }
  }

  double sum(int64_t index) const { return sums_[index]; }

 private:
  std::vector<double> sums_;  // [size, size]
  Buffer<T> packed_;          // [panels][depth][width]
};

}  // namespace simcore::cpu
