// Nuclear norms of Xc^T Yc for all layer pairs: CCA and SVCCA (orthonormal bases), Procrustes.
//
// Math      ||M||_* = tr (M M^T)^(1/2). The square root is a sum of resolvents with Zolotarev's
// poles
//           (Hale, Higham & Trefethen 2008, method 3), and the trace of a resolvent of a band
//           matrix costs O(size b^2): no singular value is ever computed.
// Shapes    layers [n, p_i]; M [p_i, p_j]; A = M M^T of the smaller side.
// Plan      one pair a task, everything of it in the thread's own workspace:
//             M = Xc^T Yc      products in float, summed in float64 every kDepth examples
//             A = M M^T        float64
//             A -> band        isa_spectral.h
//             traces of kPoles resolvents, one shift a lane
// Cost      2 n p_i p_j + c^2 (p_i + p_j) + 4/3 c^3 flops, c = min(p_i, p_j), all at the rate of
//           matrix products; LAPACK's singular values do half of 8/3 c^3 as matrix-vector products.
// Numerics  A's entries are right to float64 rounding of M's: a singular value s of M costs
//           min(s_1^2 1e-16 / s, s_1 1e-8), below float32's own rounding of M.
// Twin      simcore/reference/cca.py:cca_grid, procrustes_grid
#include "cpu/nuclear.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "cpu/grid.h"
#include "cpu/spectral.h"

namespace simcore::cpu {
namespace {

constexpr int64_t kDepth = 512;      // examples, or columns of M, per product in float
constexpr int64_t kExamples = 2048;  // packed at a time of the smaller layer
constexpr int64_t kBlock = 64;       // >= kMaxPanels * width for every instruction set

struct Sizes {
  int64_t small, large;  // columns of the two layers
  int64_t stride;        // of M's rows
  int64_t size;          // of A

  int64_t examples;  // packed at a time

  Sizes(int64_t n, int64_t p, int64_t q)
      : small(std::min(p, q)),
        large(std::max(p, q)),
        stride(round_up(large, std::max<int64_t>(kMaxPanels * isa_table<float>().width, kBand))),
        size(round_up(small, kBand)),
        examples(std::min(n, kExamples)) {}
  int64_t left() const { return round_up(small, isa_table<float>().width) * examples; }
  int64_t right() const { return kMaxPanels * isa_table<float>().width * kDepth; }
};

struct Workspace {
  Buffer<float> left, right;  // packed columns of the smaller and of the larger layer
  Buffer<double> product;     // M [small, stride]
  Buffer<double> packed;      // rows of M, [size / width][kDepth][width]
  Buffer<double> square;      // A in column panels
  Buffer<double> band, work;

  explicit Workspace(const Sizes& s)
      : left(s.left()),
        right(s.right()),
        product(s.size * s.stride),
        packed(s.size * kDepth),
        square(s.size * s.size),
        band(s.size * (kBand + 1)),
        work(band_work(s.size)) {}

  static int64_t bytes(const Sizes& s) {
    return buffer_bytes(4 * s.left()) + buffer_bytes(4 * s.right()) +
           buffer_bytes(8 * s.size * s.stride) + buffer_bytes(8 * s.size * kDepth) +
           buffer_bytes(8 * s.size * s.size) + buffer_bytes(8 * s.size * (kBand + 1)) +
           buffer_bytes(8 * band_work(s.size));
  }
};

// c[mr, columns] += the micro-kernel's product, in float64.
template <typename T>
void add_product(const IsaTable<T>& isa, const T* left, const T* right, int64_t depth, double* c,
                 int64_t c_stride) {
  const int64_t unit = kMaxPanels * isa.width;
  alignas(64) T block[kBlock * kBlock];
  isa.micro[kMaxPanels - 1](left, right, isa.width * depth, depth, block, unit, false);
  isa.add_block(block, isa.mr, unit, c, c_stride);
}

// M = a^T b, a having the fewer columns. Columns of M outside, depth inside: a strip of M stays in
// cache while its products are added up.
void multiply(const Grid<float>& grid, int64_t a, int64_t b, const Sizes& s, Workspace& w) {
  const IsaTable<float>& isa = isa_table<float>();
  const int64_t unit = kMaxPanels * isa.width, rows_of_m = round_up(s.small, isa.mr);
  double* m = w.product.data();
  std::fill(m, m + s.size * s.stride, 0.0);
  for (int64_t begin = 0; begin < grid.n; begin += kExamples) {
    const int64_t examples = std::min(kExamples, grid.n - begin);
    isa.pack_columns(grid.layers[a], grid.centring[a], begin, examples, 0, s.small, w.left.data(),
                     isa.width * examples);
    for (int64_t j = 0; j < s.large; j += unit)
      for (int64_t row = 0; row < examples; row += kDepth) {
        const int64_t depth = std::min(kDepth, examples - row);
        const int64_t columns = std::min(s.large - j, unit);
        isa.pack_columns(grid.layers[b], grid.centring[b], begin + row, depth, j, columns,
                         w.right.data(), isa.width * depth);
        std::fill(w.right.data() + round_up(columns, isa.width) * depth,
                  w.right.data() + unit * depth, 0.0f);
        for (int64_t i = 0; i < rows_of_m; i += isa.mr)
          add_product(isa,
                      w.left.data() + (i / isa.width * examples + row) * isa.width + i % isa.width,
                      w.right.data(), depth, m + i * s.stride + j, s.stride);
      }
  }
}

// A = M M^T in column panels, lower tiles computed and mirrored.
void square(const Sizes& s, Workspace& w) {
  const IsaTable<double>& isa = isa_table<double>();
  const int64_t width = isa.width, unit = kMaxPanels * width;
  double* a = w.square.data();
  // Row-major first: entry (i, j) at a[i * size + j].
  std::fill(a, a + s.size * s.size, 0.0);
  for (int64_t k = 0; k < s.large; k += kDepth) {
    const int64_t depth = std::min(kDepth, s.large - k);
    for (int64_t i = 0; i < s.size; i += width)
      isa.pack_plain(w.product.data() + i * s.stride + k, s.stride, width, depth,
                     w.packed.data() + i * depth);
    for (int64_t j = 0; j < s.size; j += unit)
      for (int64_t i = j; i < s.size; i += isa.mr)
        add_product(isa, w.packed.data() + i / width * width * depth + i % width,
                    w.packed.data() + j * depth, depth, a + i * s.size + j, s.size);
  }
}

// Row-major lower triangle to a full symmetric matrix in column panels, scaled; `panels` may be
// any memory of size * size but the source.
double scaled_panels(const double* a, int64_t size, double* panels) {
  const int64_t width = isa_table<double>().width;
  double squares = 0;
  for (int64_t i = 0; i < size; i++)
    for (int64_t j = 0; j <= i; j++)
      squares += (i == j ? 1 : 2) * a[i * size + j] * a[i * size + j];
  const double norm = std::sqrt(squares), scale = norm > 0 ? 1 / norm : 0;
  for (int64_t i = 0; i < size; i++)
    for (int64_t j = 0; j <= i; j++) {
      const double value = a[i * size + j] * scale;
      panels[(j / width * size + i) * width + j % width] = value;
      panels[(i / width * size + j) * width + i % width] = value;
    }
  return norm;
}

double nuclear_norm(const Grid<float>& grid, const RationalRoot& root, int64_t a, int64_t b,
                    Workspace& w) {
  if (grid.layers[a].width > grid.layers[b].width) std::swap(a, b);
  const Sizes s(grid.n, grid.layers[a].width, grid.layers[b].width);
  multiply(grid, a, b, s, w);
  square(s, w);
  const double norm = scaled_panels(w.square.data(), s.size, w.product.data());
  if (norm == 0) return 0;
  const SpectralTable& spectral = spectral_table();
  double traces[kPoles], sum = 0;
  spectral.reduce_to_band(w.product.data(), s.size, w.work.data(), w.band.data());
  spectral.resolvent_traces(w.band.data(), s.size, root.shift.data(), traces);
  for (int64_t j = 0; j < kPoles; j++)
    sum += root.weight[j] * (double(s.size) - root.shift[j] * traces[j]);
  const int exponent = grid.centring[a].exponent + grid.centring[b].exponent;
  return std::ldexp(std::sqrt(norm) * sum, exponent);
}

// ||Xc||_F; rows are measured when they are packed.
double frobenius_norm(const Grid<float>& grid, int64_t l) {
  const IsaTable<float>& isa = isa_table<float>();
  Buffer<float> panel(grid.layers[l].width * isa.width);
  double norms[kBlock], sum = 0;
  for (int64_t row = 0; row < grid.n; row += isa.width) {
    const int64_t rows = std::min<int64_t>(isa.width, grid.n - row);
    isa.pack_rows(grid.layers[l], grid.centring[l], row, rows, panel.data(), norms);
    for (int64_t r = 0; r < rows; r++) sum += norms[r];
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

Sizes widest(const NuclearProblem& problem) {
  int64_t width = 1;
  for (const auto* side : {&problem.x, &problem.y})
    for (const LayerView& layer : *side) width = std::max(width, layer.width);
  return Sizes(problem.n, width, width);
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

int64_t nuclear_workspace(const NuclearProblem& problem) {
  return Workspace::bytes(widest(problem));
}

NuclearResult nuclear_norms(const NuclearProblem& problem, int threads, const Runtime& rt) {
  const Grid<float> grid = make_grid<float>(problem.n, problem.x, problem.y, rt);
  const std::vector<Pair> pairs = wanted_pairs(grid);
  const RationalRoot root = rational_root();
  std::vector<double> norms(grid.count()), values(pairs.size());
  parallel_tasks(rt, grid.count(), [&](int64_t l, int) { norms[l] = frobenius_norm(grid, l); });
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (int t = 0; t < threads; t++)
    workspaces.push_back(std::make_unique<Workspace>(widest(problem)));

  const int64_t count = int64_t(pairs.size()), batch = 16 * threads;
  for (int64_t begin = 0; begin < count; begin += batch) {
    const int64_t end = std::min(begin + batch, count);
    parallel_tasks(rt, end - begin, threads, [&](int64_t task, int slot) {
      const auto [a, b] = pairs[begin + task];
      const bool defined = grid.centring[a].has_variance && grid.centring[b].has_variance;
      if (!defined)
        values[begin + task] = std::numeric_limits<double>::quiet_NaN();
      else if (a ==
               b)  // X^T X is its own square root of X^T X X^T X: the trace is the norm's square
        values[begin + task] = norms[a] * norms[a];
      else
        values[begin + task] = nuclear_norm(grid, root, a, b, *workspaces[slot]);
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
