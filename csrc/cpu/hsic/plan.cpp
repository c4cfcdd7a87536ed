// The planner: cost model, tile sizes, workspace. Every buffer that the paths allocate is counted
// here, so that max_memory is a bound and not a hope.
#include "cpu/hsic/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "cpu/base/memory.h"
#include "cpu/isa/isa.h"
#include "cpu/products/gram_layout.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kTileCols = 96;  // columns of a Gram tile
// Of packed rows: fresh memory costs page faults, which on a virtual machine are dearer than
// packing a column twice; below kTileRows packing dominates.
constexpr int64_t kRowPanelBytes = 32ll << 20;
constexpr int64_t kTileRows = 384;
constexpr int64_t kTileBytes = 48ll << 20;  // of Gram tiles of all layers
constexpr int64_t kMaxDepth = 1024;         // of one product over features
constexpr int64_t kFeatureDepth = 512;      // of one product over examples
constexpr int64_t kFeatureTile = 192;
constexpr int64_t kFeatureRows = 2;   // blocks of kFeatureTile on the left of one packing
constexpr int64_t kResultCopies = 7;  // of [Lx, Ly], while it is being normalised

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t(0));
}

bool in_float64(const PlanRequest& r) {
  return r.float64 || (r.kernel == KernelKind::rbf && r.bandwidth >= kFloat64Bandwidth);
}

// Sizes that every candidate plan is costed with.
struct Sizes {
  int64_t n, layers, result, total_width, widest, element, width, unit, threads, pairs;
  bool rbf, row_results;  // row_results: sums per row of every layer
  double squared_widths;  // sum_l p_l^2

  explicit Sizes(const PlanRequest& r)
      : n(r.n),
        layers(int64_t(r.widths_x.size() + r.widths_y.size())),
        total_width(sum(r.widths_x) + sum(r.widths_y)),
        widest(0),
        element(in_float64(r) ? 8 : 4),
        width(in_float64(r) ? isa_table<double>().width : isa_table<float>().width),
        unit(kMaxPanels * width),
        threads(r.threads),
        rbf(r.kernel == KernelKind::rbf),
        row_results(rbf || r.power_sums),
        squared_widths(0) {
    const int64_t x = int64_t(r.widths_x.size()), y = int64_t(r.widths_y.size());
    result = y == 0 ? x * x : x * y;
    pairs = y == 0 ? x * (x + 1) / 2 : x * y + x + y;
    for (const auto* widths : {&r.widths_x, &r.widths_y})
      for (const int64_t p : *widths) {
        widest = std::max(widest, p);
        squared_widths += double(p) * double(p);
      }
  }

  int64_t median_rows() const { return n == 0 ? 0 : MedianRule(n).rows; }
};

double gram_flops(const Sizes& s) {
  const double n = double(s.n), m = double(s.median_rows());
  const double grams = n * n * double(s.total_width) + n * n * double(s.pairs);
  return s.rbf ? grams + m * m * double(s.total_width) : grams;
}

double feature_flops(const Sizes& s, const PlanRequest& r) {
  if (s.rbf) return std::numeric_limits<double>::infinity();
  const double px = double(sum(r.widths_x)), py = double(sum(r.widths_y)), n = double(s.n);
  const double cross = r.widths_y.empty() ? px * px - s.squared_widths : 2 * px * py;
  return n * (cross + s.squared_widths);
}

// Means, sums and results, whatever the path.
int64_t common_bytes(const Sizes& s) {
  const int64_t centring = s.total_width * 2 * s.element + s.threads * s.widest * 3 * 8;
  const int64_t per_row = s.layers * round_up(s.n, s.unit) * 8;  // one float64 [L, n] array
  return centring + (s.row_results ? 5 : 3) * per_row +
         (s.layers * s.layers + kResultCopies * s.result) * 8;
}

int64_t gram_bytes(const Sizes& s, int64_t rows, int64_t cols) {
  const bool repack = rows < s.n;
  const int64_t held = round_up(std::min(rows, s.n), s.unit);
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
  const int64_t m = round_up(s.median_rows(), s.unit);
  const int64_t pass = buffer_bytes(m * s.widest * s.element) +
                       buffer_bytes((m * m / 2 + s.unit) * s.element) + m * s.element;
  return std::min(s.threads, s.layers) * pass;
}

int64_t feature_bytes(const Sizes& s, int64_t rows, int64_t cols) {
  const int64_t scratch = buffer_bytes(cols * kFeatureDepth * s.element) + rows * cols * 8;
  const int64_t norms = s.widest * s.width * s.element;
  return buffer_bytes(rows * s.n * s.element) + s.threads * (scratch + norms);
}

[[noreturn]] void refuse(int64_t wanted, int64_t limit) {
  throw std::invalid_argument("max_memory: wanted at least " + std::to_string(wanted) +
                              " bytes for the smallest tiles, got " + std::to_string(limit));
}

void plan_gram(Plan& plan, const Sizes& s, int64_t depth_limit) {
  const int64_t common = common_bytes(s), median = median_bytes(s);
  for (const int64_t cols :
       {round_up(kTileCols, s.unit), round_up(kTileCols / 2, s.unit), s.unit}) {
    const int64_t panel = std::max<int64_t>(1, s.total_width * cols * s.element);
    const int64_t tile = std::max<int64_t>(1, s.layers * cols * cols * s.element);
    int64_t blocks =
        std::min(std::max(kRowPanelBytes / panel, kTileRows / cols), kTileBytes / tile);
    blocks = std::clamp<int64_t>(blocks, 1, (s.n + cols - 1) / cols);
    for (; blocks >= 1; blocks--) {
      plan.tile_rows = blocks * cols;
      plan.tile_cols = cols;
      plan.workspace_bytes = common + std::max(median, gram_bytes(s, plan.tile_rows, cols));
      plan.depth = depth_limit;
      if (plan.workspace_bytes <= plan.max_memory) return;
    }
  }
  refuse(plan.workspace_bytes, plan.max_memory);
}

void plan_feature(Plan& plan, const Sizes& s) {
  plan.depth = kFeatureDepth;
  for (int64_t tile = std::min(round_up(kFeatureTile, s.unit), round_up(s.widest, s.unit));
       tile >= s.unit; tile -= s.unit) {
    plan.tile_cols = tile;
    for (const int64_t factor : {kFeatureRows, int64_t(1)}) {
      plan.tile_rows = std::min(factor, (s.widest + tile - 1) / tile) * tile;
      plan.workspace_bytes = common_bytes(s) + feature_bytes(s, plan.tile_rows, tile);
      if (plan.workspace_bytes <= plan.max_memory) return;
    }
  }
  refuse(plan.workspace_bytes, plan.max_memory);
}

Plan plan_method(Plan plan, const Sizes& s, Method method) {
  plan.method = method;
  plan.flops = method == Method::gram ? plan.flops_gram : plan.flops_feature;
  if (method == Method::gram)
    plan_gram(plan, s, kMaxDepth);
  else
    plan_feature(plan, s);
  return plan;
}

}  // namespace

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t buffer_bytes(int64_t bytes) {
  return bytes >= kHugePage ? round_up(bytes, kHugePage) : bytes;
}

Plan make_plan(const PlanRequest& request) {
  const Sizes sizes(request);
  Plan plan;
  plan.float64 = in_float64(request);
  plan.max_memory = memory_bound(request.max_memory);
  plan.flops_gram = gram_flops(sizes);
  plan.flops_feature = feature_flops(sizes, request);
  if (request.method == Method::feature && sizes.rbf)
    throw std::invalid_argument(
        "method: wanted 'auto' or 'gram' for kernel 'rbf', which has no feature form, got "
        "'feature'");
  if (request.method != Method::automatic) return plan_method(plan, sizes, request.method);
  const bool feature = plan.flops_feature < plan.flops_gram;
  const Method fewer = feature ? Method::feature : Method::gram;
  if (sizes.rbf) return plan_method(plan, sizes, fewer);
  try {
    return plan_method(plan, sizes, fewer);
  } catch (const std::invalid_argument&) {  // does not fit: the other method may
    return plan_method(plan, sizes, feature ? Method::gram : Method::feature);
  }
}

}  // namespace simcore::cpu
