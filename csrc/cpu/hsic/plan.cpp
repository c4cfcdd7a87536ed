// The planner: cost model, tile sizes, workspace. Every buffer that the paths allocate is counted
// here, so that max_memory is a bound and not a hope.
#include "cpu/hsic/plan.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/math/rbf_math.h"
#include "cpu/base/buffer.h"
#include "cpu/base/memory.h"
#include "cpu/hsic/gram_tile.h"
#include "cpu/products/contraction.h"

namespace simcore::cpu {
namespace {

// Columns of a Gram tile. Each packed row is read from memory once per tile.
constexpr int64_t kTileCols = 384;
constexpr int64_t kNarrowCols = 96;
// Bytes of packed rows. Fresh memory costs page faults, which on a virtual machine cost more time
// than packing a column twice; below kTileRows rows, packing dominates.
constexpr int64_t kRowPanelBytes = 32ll << 20;
constexpr int64_t kTileRows = 384;
// Bytes of the Gram tiles of all layers: for more than kTileRows rows, and for more than
// kNarrowCols columns.
constexpr int64_t kTileBytes = 48ll << 20, kWideBytes = 192ll << 20;
// Of one product over features: the right operand of a micro-kernel call stays in the first cache,
// and the left operand of a task in the second.
constexpr int64_t kMaxDepth = 192;

bool in_float64(const HsicRequest& r) {
  return r.float64 || (r.kernel == KernelKind::rbf && r.bandwidth >= kFloat64Bandwidth);
}

// Sums of the widths of one side, and of their squares.
struct Widths {
  double sum = 0, squares = 0;
  explicit Widths(const std::vector<int64_t>& widths) {
    for (const int64_t p : widths) sum += double(p), squares += double(p) * double(p);
  }
};

struct Sizes : GridSizes {
  int64_t pairs;
  bool linear, rbf, row_results;  // row_results: sums per row of every layer
  bool symmetric;                 // x with itself
  Widths x, y;

  explicit Sizes(const HsicRequest& r)
      : GridSizes(r, in_float64(r)),
        linear(r.kernel == KernelKind::linear),
        rbf(r.kernel == KernelKind::rbf && !r.rows_alone),
        row_results(!linear || r.power_sums),
        symmetric(r.widths_y.empty()),
        x(r.widths_x),
        y(r.widths_y) {
    const int64_t rows = int64_t(r.widths_x.size()), columns = int64_t(r.widths_y.size());
    pairs = symmetric ? rows * (rows + 1) / 2 : rows * columns + rows + columns;
    if (r.rows_alone) pairs = 0;
  }

  int64_t median_rows() const { return n == 0 ? 0 : MedianRule(n).rows; }
  int64_t common() const { return common_bytes(*this, row_results ? kRowArrays + 2 : kRowArrays); }
};

double gram_flops(const Sizes& s) {
  const double n = double(s.n), m = double(s.median_rows());
  const double grams = n * n * double(s.total_width) + n * n * double(s.pairs);
  return s.rbf ? grams + m * m * double(s.total_width) : grams;
}

double feature_flops(const Sizes& s) {
  if (!s.linear) return std::numeric_limits<double>::infinity();
  const double squares = s.x.squares + s.y.squares;
  const double cross = s.symmetric ? s.x.sum * s.x.sum - squares : 2 * s.x.sum * s.y.sum;
  return double(s.n) * (cross + squares);
}

int64_t gram_bytes(const Sizes& s, int64_t rows, int64_t cols) {
  const bool repack = rows < s.n;
  const int64_t held = round_to(std::min(rows, s.n), s.unit);
  const int64_t panels = buffer_bytes(s.total_width * held * s.element) +
                         (repack ? s.threads * buffer_bytes(s.widest * cols * s.element) : 0) +
                         s.threads * cols * 8;
  const ContractionPlan contraction(s.layers, 0, s.width);
  const int64_t size = contraction.size() + s.width;  // y may start a panel of its own
  const int64_t slot = size * size * 8 + buffer_bytes(size * contraction.depth * s.element);
  const int64_t tiles = buffer_bytes(s.layers * (rows * cols + kTilePad) * s.element);
  return panels + tiles + s.threads * slot;
}

int64_t median_bytes(const Sizes& s) {
  if (!s.rbf) return 0;
  const int64_t m = round_to(s.median_rows(), s.unit);
  const int64_t pass = buffer_bytes(m * s.widest * s.element) +
                       buffer_bytes((m * m / 2 + s.unit) * s.element) + m * s.element;
  return std::min(s.threads, s.layers) * pass;
}

// Plans tiles of `cols` columns and as many blocks of `cols` rows as fit into max_memory; returns
// false where these would be fewer than `least`.
bool plan_tiles(HsicPlan& plan, const Sizes& s, int64_t cols, int64_t least) {
  const int64_t panel = std::max<int64_t>(1, s.total_width * cols * s.element);
  const int64_t tile = std::max<int64_t>(1, s.layers * cols * cols * s.element);
  const int64_t wanted = std::max(std::min(kRowPanelBytes / panel, kTileBytes / tile),
                                  std::max<int64_t>(1, kTileRows / cols));
  const int64_t common = s.common(), median = median_bytes(s);
  plan.tile_cols = cols;
  plan.depth = kMaxDepth;
  const int64_t all = std::max<int64_t>(1, (s.n + cols - 1) / cols);
  for (int64_t blocks = std::min(wanted, all); blocks >= std::max<int64_t>(1, least); blocks--) {
    plan.tile_rows = blocks * cols;
    plan.workspace_bytes = common + std::max(median, gram_bytes(s, plan.tile_rows, cols));
    if (plan.workspace_bytes <= plan.max_memory) return true;
  }
  return false;
}

// Wide tiles first, and tiles of fewer rows than kTileRows last.
void plan_gram(HsicPlan& plan, const Sizes& s) {
  const int64_t most = round_to(std::max<int64_t>(1, s.n), s.unit);
  for (int64_t cols = kTileCols; cols >= kNarrowCols; cols /= 2) {
    const int64_t fitting = std::min(round_to(cols, s.unit), most);
    const int64_t bytes = s.layers * kTileRows * fitting * s.element;
    if (cols > kNarrowCols && bytes > kWideBytes) continue;
    if (plan_tiles(plan, s, fitting, (std::min(kTileRows, s.n) + fitting - 1) / fitting)) return;
  }
  for (const int64_t cols : {kNarrowCols, kNarrowCols / 2, s.unit})
    if (plan_tiles(plan, s, std::min(round_to(cols, s.unit), most), 1)) return;
  refuse_memory(plan);
}

HsicPlan plan_method(HsicPlan plan, const Sizes& s, Method method) {
  plan.method = method;
  plan.flops = method == Method::gram ? plan.flops_gram : plan.flops_feature;
  if (method == Method::gram)
    plan_gram(plan, s);
  else
    plan_column_tiles(plan, s, s.common());
  return plan;
}

}  // namespace

HsicPlan make_plan(const HsicRequest& request) {
  const Sizes sizes(request);
  HsicPlan plan;
  plan.float64 = in_float64(request);
  plan.power_sums = request.power_sums;
  plan.rows_alone = request.rows_alone;
  plan.max_memory = memory_bound(request.max_memory);
  plan.flops_gram = gram_flops(sizes);
  plan.flops_feature = feature_flops(sizes);
  if (request.method == Method::feature && !sizes.linear)
    throw std::invalid_argument(std::string("method: wanted 'auto' or 'gram' for kernel '") +
                                (sizes.rbf ? "rbf" : "distance") +
                                "', which has no feature form, got 'feature'");
  if (request.method != Method::automatic) return plan_method(plan, sizes, request.method);
  const bool feature = plan.flops_feature < plan.flops_gram;
  const Method fewer = feature ? Method::feature : Method::gram;
  if (!sizes.linear) return plan_method(plan, sizes, fewer);
  try {
    return plan_method(plan, sizes, fewer);
  } catch (const std::invalid_argument&) {  // does not fit: the other method may
    return plan_method(plan, sizes, feature ? Method::gram : Method::feature);
  }
}

}  // namespace simcore::cpu
