#include "cpu/products/column_plan.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "core/math/index_math.h"
#include "cpu/base/buffer.h"
#include "cpu/isa/isa.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kDepth = 512;  // of one product over examples
constexpr int64_t kTile = 192;
constexpr int64_t kLeftTiles = 4;     // blocks of kTile on the left of one packing
constexpr int64_t kResultCopies = 7;  // of [Lx, Ly], while it is being normalised

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t(0));
}

int64_t largest(const std::vector<int64_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

int64_t column_bytes(const GridSizes& s, int64_t rows, int64_t cols) {
  const int64_t scratch = buffer_bytes(cols * kDepth * s.element) + rows * cols * 8;
  const int64_t norms = s.widest * s.width * s.element;
  return buffer_bytes(rows * s.n * s.element) + s.threads * (scratch + norms);
}

}  // namespace

GridRequest grid_request(const LayersProblem& problem, int64_t max_memory, int threads) {
  GridRequest request;
  request.n = problem.n;
  for (const LayerView& layer : problem.x) request.widths_x.push_back(layer.width);
  for (const LayerView& layer : problem.y) request.widths_y.push_back(layer.width);
  request.float64 = problem.has_float64();
  request.threads = threads;
  request.max_memory = max_memory;
  return request;
}

GridSizes::GridSizes(const GridRequest& r, bool float64)
    : n(r.n),
      layers(int64_t(r.widths_x.size() + r.widths_y.size())),
      result(int64_t(r.widths_x.size() * (r.widths_y.empty() ? r.widths_x : r.widths_y).size())),
      total_width(sum(r.widths_x) + sum(r.widths_y)),
      widest(std::max(largest(r.widths_x), largest(r.widths_y))),
      element(float64 ? 8 : 4),
      width(float64 ? isa_table<double>().width : isa_table<float>().width),
      unit(kMaxPanels * width),
      threads(r.threads) {}

int64_t common_bytes(const GridSizes& s, int64_t row_arrays) {
  const int64_t centring = s.total_width * 2 * s.element + s.threads * s.widest * 3 * 8;
  const int64_t per_row = s.layers * round_to(s.n, s.unit) * 8;  // one float64 [L, n] array
  return centring + row_arrays * per_row + (s.layers * s.layers + kResultCopies * s.result) * 8;
}

void plan_column_tiles(TilePlan& plan, const GridSizes& s, int64_t common) {
  plan.depth = kDepth;
  for (int64_t tile = std::min(round_to(kTile, s.unit), round_to(s.widest, s.unit)); tile >= s.unit;
       tile -= s.unit) {
    plan.tile_cols = tile;
    for (int64_t factor = kLeftTiles; factor >= 1; factor /= 2) {
      plan.tile_rows = std::min(factor, (s.widest + tile - 1) / tile) * tile;
      plan.workspace_bytes = common + column_bytes(s, plan.tile_rows, tile);
      if (plan.workspace_bytes <= plan.max_memory) return;
    }
  }
  refuse_memory(plan);
}

void refuse_memory(const TilePlan& plan) {
  throw std::invalid_argument(
      "max_memory: wanted at least " + std::to_string(plan.workspace_bytes) +
      " bytes for the smallest tiles, got " + std::to_string(plan.max_memory));
}

}  // namespace simcore::cpu
