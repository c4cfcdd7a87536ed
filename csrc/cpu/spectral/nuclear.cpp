// Nuclear norms of Xc^T Yc for all layer pairs: CCA and SVCCA (orthonormal bases), Procrustes.
//
// Math      ||M||_* = tr (M M^T)^(1/2). Orthogonal maps take M to an upper band B with the same
//           singular values; the square root of B B^T, a band again, is a sum of resolvents with
//           Zolotarev's poles (Hale, Higham & Trefethen 2008, method 3), and the trace of a band's
//           resolvent costs O(rows b^2): no singular value is ever computed.
// Shapes    layers [n, p_i]; M [p_i, p_j], the smaller side first.
// Plan      layers packed once if memory allows, else for each pair; then one pair a task,
//           everything of it in the thread's own workspace:
//             M = Xc^T Yc      products in float, summed in float64 every kDepth examples, in
//                              float every kExamples of layers that are not kept packed
//             M -> B           spectral_impl.h, float
//             tr (B B^T)^1/2   float64, one shift a lane
// Cost      2 n p_i p_j + 4 c^2 (max - c / 3) flops, c = min(p_i, p_j), at the rate of matrix
//           products; LAPACK's singular values do half of the second part as products with vectors.
// Numerics  singular values within a few float32 eps of the largest; the root adds 3e-7 of it.
// Twin      simcore/reference/cca.py:cca_grid, procrustes_grid
#include "cpu/spectral/nuclear.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/math/nan.h"
#include "cpu/base/buffer.h"
#include "cpu/isa/isa.h"
#include "cpu/isa/spectral_table.h"
#include "cpu/products/grid.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kDepth = 512;      // examples per product in float
constexpr int64_t kExamples = 2048;  // packed at a time by a thread, of layers that are not kept

int64_t unit() { return kMaxPanels * isa_table<float>().width; }

struct Sizes {
  int64_t small, large;  // columns of the two layers
  int64_t rows, cols;    // of M, padded with zeros to whole bands
  int64_t examples;      // packed at a time; 0: the layers are kept packed

  Sizes(int64_t n, int64_t p, int64_t q, bool keep_packed)
      : small(std::min(p, q)),
        large(std::max(p, q)),
        rows(round_to(small, spectral_table().band)),
        cols(round_to(large, spectral_table().band)),
        examples(keep_packed ? 0 : std::min(n, kExamples)) {}
  int64_t left() const { return round_to(small, isa_table<float>().width) * examples; }
  int64_t right() const { return unit() * examples; }
  int64_t band() const { return rows * (spectral_table().band + 1); }
  int64_t work() const { return spectral_table().band_work(rows, cols); }
};

struct Workspace {
  Buffer<float> left, right;   // packed columns of the smaller and of the larger layer
  Buffer<float> product;       // M in column panels
  Buffer<double> upper, band;  // B, and B B^T
  Buffer<float> work;
  int64_t packed = -1;  // the layer that `left` holds whole

  explicit Workspace(const Sizes& s)
      : left(s.left()),
        right(s.right()),
        product(s.rows * s.cols),
        upper(s.band()),
        band(s.band()),
        work(s.work()) {}

  static int64_t bytes(const Sizes& s) {
    return buffer_bytes(4 * s.left()) + buffer_bytes(4 * s.right()) +
           buffer_bytes(4 * s.rows * s.cols) + 2 * buffer_bytes(8 * s.band()) +
           buffer_bytes(4 * s.work());
  }
};

// Packed columns: panels of `stride` entries, each [examples][width].
struct Panels {
  const float* data;
  int64_t stride;
};

// All layers packed whole, or no layer at all.
class PackedLayers {
 public:
  PackedLayers(const Grid<float>& grid, bool keep, const Runtime& rt)
      : stride_(isa_table<float>().width * grid.n) {
    if (!keep) return;
    for (const LayerView& layer : grid.layers)
      layers_.push_back(std::make_unique<Buffer<float>>(entries(grid.n, layer)));
    parallel_tasks(rt, grid.count(), [&](int64_t l, int) {
      float* const data = layers_[l]->data();
      const int64_t width = isa_table<float>().width, p = grid.layers[l].width;
      isa_table<float>().pack_columns(grid.layers[l], grid.centring[l], 0, grid.n, 0, p, data,
                                      stride_);
      std::fill(data + round_to(p, width) / width * stride_, data + entries(grid.n, grid.layers[l]),
                0.0f);
    });
  }
  bool kept() const { return !layers_.empty(); }
  Panels layer(int64_t l) const { return {layers_[l]->data(), stride_}; }

  // Layers are padded to whole units of columns, because any layer may be the right operand.
  static int64_t entries(int64_t n, const LayerView& layer) {
    return n * round_to(layer.width, unit());
  }

 private:
  std::vector<std::unique_ptr<Buffer<float>>> layers_;
  int64_t stride_;
};

struct Problem {
  const Grid<float>& grid;
  const PackedLayers& packed;
  const RationalRoot& root;
};

// Computes columns [j, j + unit) of M += left^T right over `examples`; right is one unit of
// columns.
void multiply_strip(Panels left, Panels right, int64_t examples, int64_t j, const Sizes& s,
                    float* m) {
  const IsaTable<float>& isa = isa_table<float>();
  const int64_t w = isa.width;
  alignas(64) float block[kMaxUnit * kMaxUnit];
  alignas(64) double sums[kMaxUnit * kMaxUnit];
  for (int64_t i = 0; i < s.small; i += isa.mr) {
    std::fill(sums, sums + isa.mr * unit(), 0.0);
    for (int64_t row = 0; row < examples; row += kDepth) {
      isa.micro[kMaxPanels - 1](left.data + i / w * left.stride + row * w + i % w,
                                right.data + row * w, right.stride,
                                std::min(kDepth, examples - row), block, unit(), false);
      isa.add_block(block, isa.mr, unit(), sums, unit());
    }
    for (int64_t q = 0; q < unit() && j + q < s.cols; q += w)
      for (int64_t r = 0; r < isa.mr; r++) {
        float* const out = m + ((j + q) / w * s.rows + i + r) * w;
        for (int64_t c = 0; c < w; c++) out[c] += float(sums[r * unit() + q + c]);
      }
  }
}

// Computes M = a^T b, a having the fewer columns, from layers that are kept packed.
void multiply_packed(const Problem& problem, int64_t a, int64_t b, const Sizes& s, Workspace& w) {
  const Panels left = problem.packed.layer(a), right = problem.packed.layer(b);
  for (int64_t j = 0; j < s.large; j += unit())
    multiply_strip(left, {right.data + j / isa_table<float>().width * right.stride, right.stride},
                   problem.grid.n, j, s, w.product.data());
}

// Computes M = a^T b, a having the fewer columns, packing kExamples at a time.
void multiply_packing(const Problem& problem, int64_t a, int64_t b, const Sizes& s, Workspace& w) {
  const IsaTable<float>& isa = isa_table<float>();
  const Grid<float>& grid = problem.grid;
  for (int64_t begin = 0; begin < grid.n; begin += kExamples) {
    const int64_t examples = std::min(kExamples, grid.n - begin), stride = isa.width * examples;
    if (w.packed != a)  // pairs of one layer follow one another
      isa.pack_columns(grid.layers[a], grid.centring[a], begin, examples, 0, s.small, w.left.data(),
                       stride);
    w.packed = examples == grid.n ? a : -1;
    for (int64_t j = 0; j < s.large; j += unit()) {
      const int64_t columns = std::min(s.large - j, unit());
      isa.pack_columns(grid.layers[b], grid.centring[b], begin, examples, j, columns,
                       w.right.data(), stride);
      std::fill(w.right.data() + round_to(columns, isa.width) * examples,
                w.right.data() + unit() * examples, 0.0f);
      multiply_strip({w.left.data(), stride}, {w.right.data(), stride}, examples, j, s,
                     w.product.data());
    }
  }
}

// Computes A = B B^T of an upper band B, both [size][b + 1] by diagonals, scaled to ||A||_F = 1.
// Returns the norm of A before scaling.
double squared_band(const double* upper, int64_t size, double* band) {
  const int64_t b = spectral_table().band, stride = b + 1;
  double squares = 0;
  for (int64_t i = 0; i < size; i++)
    for (int64_t e = 0; e <= b; e++) {
      double sum = 0;
      for (int64_t d = 0; i + e < size && d + e <= b; d++)
        sum += upper[(i + e) * stride + d] * upper[i * stride + d + e];
      band[i * stride + e] = sum;
      squares += (e == 0 ? 1 : 2) * sum * sum;
    }
  const double norm = std::sqrt(squares);
  for (int64_t i = 0; norm > 0 && i < size * stride; i++) band[i] /= norm;
  return norm;
}

double nuclear_norm(const Problem& problem, int64_t a, int64_t b, Workspace& w) {
  const Grid<float>& grid = problem.grid;
  const RationalRoot& root = problem.root;
  if (grid.layers[a].width > grid.layers[b].width) std::swap(a, b);
  const bool kept = problem.packed.kept();
  const Sizes s(grid.n, grid.layers[a].width, grid.layers[b].width, kept);
  const SpectralTable& spectral = spectral_table();
  std::fill(w.product.data(), w.product.data() + s.rows * s.cols, 0.0f);
  (kept ? multiply_packed : multiply_packing)(problem, a, b, s, w);
  spectral.reduce_to_band(w.product.data(), s.rows, s.cols, w.work.data(), w.upper.data());
  const double norm = squared_band(w.upper.data(), s.rows, w.band.data());
  if (norm == 0) return 0;
  double traces[kPoles], sum = 0;
  spectral.resolvent_traces(w.band.data(), s.rows, root.shift.data(), traces);
  for (int64_t j = 0; j < kPoles; j++)
    sum += root.weight[j] * (double(s.rows) - root.shift[j] * traces[j]);
  const int exponent = grid.centring[a].exponent + grid.centring[b].exponent;
  return std::ldexp(std::sqrt(norm) * sum, exponent);
}

// ||Xc||_F
double frobenius_norm(const Grid<float>& grid, int64_t l) {
  const IsaTable<float>& isa = isa_table<float>();
  Buffer<float> panels(unit() * kDepth);
  double sum = 0;
  for (int64_t row = 0; row < grid.n; row += kDepth)
    for (int64_t c = 0; c < grid.layers[l].width; c += unit()) {
      const int64_t rows = std::min(kDepth, grid.n - row);
      const int64_t columns = std::min(unit(), grid.layers[l].width - c);
      isa.pack_columns(grid.layers[l], grid.centring[l], row, rows, c, columns, panels.data(),
                       isa.width * rows);
      double sums[8] = {};
      for (int64_t i = 0; i < round_to(columns, isa.width) * rows; i++)
        sums[i % 8] += double(panels.data()[i]) * double(panels.data()[i]);
      for (double part : sums) sum += part;
    }
  return std::ldexp(std::sqrt(sum), grid.centring[l].exponent);
}

struct Pair {
  int64_t a, b;
};

std::vector<Pair> wanted_pairs(const Grid<float>& grid) {
  std::vector<Pair> pairs;
  for (int64_t a = 0; a < grid.count_x; a++)
    for (int64_t b = grid.symmetric ? a : grid.count_x; b < grid.count(); b++)
      pairs.push_back({a, b});
  return pairs;
}

Sizes widest(const LayersProblem& problem, bool keep_packed) {
  int64_t width = 1;
  for (const auto* side : {&problem.x, &problem.y})
    for (const LayerView& layer : *side) width = std::max(width, layer.width);
  return Sizes(problem.n, width, width, keep_packed);
}

}  // namespace

RationalRoot rational_root() {
  constexpr double kLowest = 1e-11;
  const double k = std::sqrt(kLowest);
  // Elliptic functions of parameter 1 - k^2 by the arithmetic-geometric mean.
  std::vector<double> a{1}, c{std::sqrt(1 - k * k)};
  for (double b = k; c.back() > 1e-16 * a.back();) {
    const double mean = (a.back() + b) / 2;
    c.push_back((a.back() - b) / 2);
    b = std::sqrt(a.back() * b);
    a.push_back(mean);
  }
  constexpr double kPi = 3.14159265358979323846;
  const double period = kPi / (2 * a.back());  // K'
  RationalRoot root;
  for (int64_t j = 0; j < kPoles; j++) {
    double phi = std::ldexp(a.back() * (double(j) + 0.5) * period / kPoles, int(a.size()) - 1);
    for (size_t i = a.size() - 1; i > 0; i--)
      phi = (phi + std::asin(std::clamp(c[i] / a[i] * std::sin(phi), -1.0, 1.0))) / 2;
    const double sn = std::sin(phi), cn = std::cos(phi), dn = std::hypot(cn, k * sn);
    root.shift.push_back(k * k * (sn / cn) * (sn / cn));
    root.weight.push_back(2 * period * k / (kPi * kPoles) * dn / (cn * cn));
  }
  return root;
}

int64_t packed_bytes(const LayersProblem& problem) {
  int64_t bytes = 0;
  for (const auto* side : {&problem.x, &problem.y})
    for (const LayerView& layer : *side)
      bytes += buffer_bytes(4 * PackedLayers::entries(problem.n, layer));
  return bytes;
}

int64_t nuclear_workspace(const LayersProblem& problem, bool keep_packed) {
  return Workspace::bytes(widest(problem, keep_packed));
}

NuclearResult nuclear_norms(const LayersProblem& problem, bool keep_packed, int threads,
                            const Runtime& rt) {
  const Grid<float> grid = make_grid<float>(problem, rt);
  const std::vector<Pair> pairs = wanted_pairs(grid);
  const RationalRoot root = rational_root();
  const PackedLayers packed(grid, keep_packed, rt);
  std::vector<double> norms(grid.count()), values(pairs.size());
  parallel_tasks(rt, grid.count(), [&](int64_t l, int) { norms[l] = frobenius_norm(grid, l); });
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (int t = 0; t < threads; t++)
    workspaces.push_back(std::make_unique<Workspace>(widest(problem, keep_packed)));

  const int64_t count = int64_t(pairs.size()), batch = 16 * threads;
  for (int64_t begin = 0; begin < count; begin += batch) {
    const int64_t end = std::min(begin + batch, count);
    parallel_tasks(rt, end - begin, threads, [&](int64_t task, int slot) {
      const auto [a, b] = pairs[begin + task];
      const bool defined = grid.centring[a].has_variance && grid.centring[b].has_variance;
      if (!defined)
        values[begin + task] = kNaN;
      else if (a == b)  // tr X^T X
        values[begin + task] = norms[a] * norms[a];
      else
        values[begin + task] = nuclear_norm({grid, packed, root}, a, b, *workspaces[slot]);
    });
    if (rt.progress) rt.progress(double(end) / double(count));
  }

  NuclearResult result;
  const int64_t offset = grid.symmetric ? 0 : grid.count_x;
  const int64_t columns = grid.count() - offset;
  result.xy.resize(grid.count_x * columns);
  for (int64_t t = 0; t < count; t++) {
    const auto [a, b] = pairs[t];
    result.xy[a * columns + b - offset] = values[t];
    if (grid.symmetric) result.xy[b * columns + a] = values[t];
  }
  result.norm_x.assign(norms.begin(), norms.begin() + grid.count_x);
  result.norm_y.assign(norms.begin() + offset, norms.end());
  return result;
}

}  // namespace simcore::cpu
