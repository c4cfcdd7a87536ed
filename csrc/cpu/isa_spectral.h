// The bodies behind SpectralTable, included once per instruction set after isa_impl.h, whose
// register types and micro-kernel they use. float64 throughout.
//
// Math      reduce_to_band: for each block of b = kBand columns, the part below the band is
// factored
//           as P = Q R, Q = I - V T V^T, and the rest becomes Q^T A Q = A - X V^T - V X^T with
//           X = A V T - V (T^T V^T A V T) / 2 (Dongarra, Hammarling & Sorensen 1989).
//           resolvent_traces: with B + sI = L D L^T, tr (B + sI)^-1 = d/ds log det = sum_i D_i' /
//           D_i; derivatives are carried along the factorisation, forward.
// Layout    column panels: (i, k) of an [m, .] matrix at [k / width][i][k % width]. A symmetric
//           matrix in that layout is both operands of the micro-kernel as it stands.
// Cost      4/3 size^3 flops, all but size^2 b of them in micro-kernels; the trailing matrix is
// read
//           once and updated once per block. Traces: 1.5 size b^2 multiply-adds a shift, one shift
//           a lane.
// No include guard and no includes, as in isa_impl.h.

using DVec = Simd<double>::vec;
using DLoose = Simd<double>::loose;
constexpr int64_t kW = kWidth<double>;
constexpr int64_t kDMr = kMr<double>;
constexpr int64_t kUnit = kMaxPanels * kW;  // columns of one micro-kernel call
static_assert(kBand % kUnit == 0 && kPoles % kW == 0);

inline DVec load(const double* p) { return *reinterpret_cast<const DLoose*>(p); }
inline void store(double* p, DVec v) { *reinterpret_cast<DLoose*>(p) = v; }

// c[rows, kBand] = left^T right over `depth`, row-major with stride c_stride. left: panels of
// `left_stride` entries; right: panels of `right_stride` entries.
inline void multiply_band(const double* left, int64_t left_stride, int64_t rows,
                          const double* right, int64_t right_stride, int64_t depth, double* c,
                          int64_t c_stride) {
  for (int64_t j = 0; j < kBand; j += kUnit)
    for (int64_t i = 0; i < rows; i += kDMr)
      micro<double, kMaxPanels>(left + i / kW * left_stride + i % kW, right + j / kW * right_stride,
                                right_stride, depth, c + i * c_stride + j, c_stride, false);
}

// Row-major [rows, kBand] with a row stride to column panels of `rows` rows.
inline void to_panels(const double* source, int64_t stride, int64_t rows, double* panels) {
  for (int64_t q = 0; q < kBand / kW; q++)
    for (int64_t i = 0; i < rows; i++)
      store(panels + (q * rows + i) * kW, load(source + i * stride + q * kW));
}

// Makes column c of the panel zero below its entry c; v[0, m) becomes the reflector I - tau v v^T
// with v[c] = 1 and zeros above. Returns tau.
inline double reflector(double* panel, int64_t m, int64_t c, double* v) {
  double* column = panel + c / kW * m * kW + c % kW;
  double below = 0;
  for (int64_t i = c + 1; i < m; i++) below += column[i * kW] * column[i * kW];
  for (int64_t i = 0; i < c; i++) v[i] = 0;
  v[c] = 1;
  const double head = column[c * kW];
  if (below == 0) {
    for (int64_t i = c + 1; i < m; i++) v[i] = 0;
    return 0;
  }
  const double norm = __builtin_sqrt(head * head + below);
  const double beta = head > 0 ? -norm : norm;
  const double scale = 1 / (head - beta);
  for (int64_t i = c + 1; i < m; i++) v[i] = column[i * kW] * scale;
  return (beta - head) / beta;
}

// panel <- (I - tau v v^T) panel, columns from c's register on. Entries below the diagonal of
// finished columns are never read again.
inline void reflect(double* panel, int64_t m, int64_t c, const double* v, double tau) {
  for (int64_t q = c / kW; q < kBand / kW; q++) {
    double* p = panel + q * m * kW;
    DVec even{}, odd{};
    int64_t i = c;
    for (; i + 2 <= m; i += 2) {
      even += v[i] * load(p + i * kW);
      odd += v[i + 1] * load(p + (i + 1) * kW);
    }
    if (i < m) even += v[i] * load(p + i * kW);
    const DVec dot = (even + odd) * tau;
    for (i = c; i < m; i++) store(p + i * kW, load(p + i * kW) - v[i] * dot);
  }
}

struct BandWork {
  double *panel, *reflectors;  // column panels [m, kBand]: what is factored; V
  double* rows;                // [m, 2 kBand] row-major: A V or X, then V
  double *left, *right;        // row panels [m / width][2 kBand][width] of [X V] and of [V X]
  double* v;                   // [m]
  double small[4][kBand * kBand];
};

// Factors columns [j, j + kBand) below the band, whose entries R go to `band`; V into
// work.reflectors and the right half of work.rows, taus out.
inline void factor_panel(const double* a, int64_t size, int64_t j, BandWork& work, double* band,
                         double* taus) {
  const int64_t o = j + kBand, m = size - o;
  for (int64_t q = 0; q < kBand / kW; q++) {
    const double* source = a + ((j / kW + q) * size + o) * kW;
    for (int64_t i = 0; i < m * kW; i += kW) store(work.panel + q * m * kW + i, load(source + i));
  }
  for (int64_t c = 0; c < kBand; c++) {
    taus[c] = reflector(work.panel, m, c, work.v);
    reflect(work.panel, m, c, work.v, taus[c]);
    double* column = work.reflectors + c / kW * m * kW + c % kW;
    for (int64_t i = 0; i < m; i++)
      column[i * kW] = work.rows[i * 2 * kBand + kBand + c] = work.v[i];
    for (int64_t r = 0; r <= c; r++)
      band[(j + c) * (kBand + 1) + kBand + r - c] = work.panel[(c / kW * m + r) * kW + c % kW];
  }
}

// T of I - V T V^T, upper triangular, from G = V^T V.
inline void compact_factor(const double* gram, const double* taus, double* t) {
  for (int64_t i = 0; i < kBand * kBand; i++) t[i] = 0;
  for (int64_t c = 0; c < kBand; c++) {
    t[c * kBand + c] = taus[c];
    for (int64_t r = 0; r < c; r++) {
      double sum = 0;
      for (int64_t k = r; k < c; k++) sum += t[r * kBand + k] * gram[k * kBand + c];
      t[r * kBand + c] = -taus[c] * sum;
    }
  }
}

// [T; -T^T H T / 2] as column panels of 2 kBand rows, the right operand of X = [AV V] [..].
inline void update_factor(const double* t, const double* h, double* scratch, double* panels) {
  const auto put = [&](int64_t row, int64_t c, double value) {
    panels[(c / kW * 2 * kBand + row) * kW + c % kW] = value;
  };
  for (int64_t i = 0; i < kBand; i++)
    for (int64_t c = 0; c < kBand; c++) {
      double sum = 0;
      for (int64_t k = 0; k <= c; k++) sum += h[i * kBand + k] * t[k * kBand + c];
      scratch[i * kBand + c] = sum;
      put(i, c, t[i * kBand + c]);
    }
  for (int64_t i = 0; i < kBand; i++)
    for (int64_t c = 0; c < kBand; c++) {
      double sum = 0;
      for (int64_t k = 0; k <= i; k++) sum += t[k * kBand + i] * scratch[k * kBand + c];
      put(kBand + i, c, -sum / 2);
    }
}

// A22 -= X V^T + V X^T from the row panels: tiles on and below the diagonal, each mirrored.
inline void update_trailing(double* a, int64_t size, int64_t o, const BandWork& work) {
  const int64_t m = size - o, depth = 2 * kBand;
  alignas(64) double block[kDMr * kUnit];
  for (int64_t j = 0; j < m; j += kUnit)
    for (int64_t i = j; i < m; i += kDMr) {
      micro<double, kMaxPanels>(work.left + i / kW * depth * kW + i % kW, work.right + j * depth,
                                depth * kW, depth, block, kUnit, false);
      const bool mirror = i >= j + kUnit;
      for (int64_t q = 0; q < kMaxPanels; q++) {
        double* lower = a + (((o + j) / kW + q) * size + o + i) * kW;
        double* upper = a + ((o + i) / kW * size + o + j + q * kW) * kW + i % kW;
        if (mirror && kDMr == kW) {
          DVec tile[kW];
#pragma GCC unroll 16
          for (int64_t r = 0; r < kW; r++) {
            tile[r] = load(lower + r * kW) - load(block + r * kUnit + q * kW);
            store(lower + r * kW, tile[r]);
          }
          transpose<double>(tile);
#pragma GCC unroll 16
          for (int64_t c = 0; c < kW; c++) store(upper + c * kW, tile[c]);
          continue;
        }
        for (int64_t r = 0; r < kDMr; r++) {
          const DVec row = load(lower + r * kW) - load(block + r * kUnit + q * kW);
          store(lower + r * kW, row);
          for (int64_t c = 0; mirror && c < kW; c++) upper[c * kW + r] = row[c];
        }
      }
    }
}

inline void pack_update(const double* rows, int64_t m, double* left, double* right) {
  const int64_t depth = 2 * kBand;
  for (int64_t i = 0; i < m; i += kW) {
    pack_plain(rows + i * depth, depth, kW, depth, left + i * depth);
    if (right == nullptr) continue;
    pack_plain(rows + i * depth + kBand, depth, kW, kBand, right + i * depth);
    pack_plain(rows + i * depth, depth, kW, kBand, right + i * depth + kBand * kW);
  }
}

inline void eliminate(double* a, int64_t size, int64_t j, BandWork& work, double* band) {
  const int64_t o = j + kBand, m = size - o, stride = 2 * kBand;
  double taus[kBand];
  double *gram = work.small[0], *t = work.small[1], *h = work.small[2], *scratch = work.small[3];
  factor_panel(a, size, j, work, band, taus);
  multiply_band(work.reflectors, m * kW, kBand, work.reflectors, m * kW, m, gram, kBand);
  compact_factor(gram, taus, t);
  // A V: by symmetry the panels of A22's columns are those of its rows.
  multiply_band(a + (o / kW * size + o) * kW, size * kW, m, work.reflectors, m * kW, m, work.rows,
                stride);
  to_panels(work.rows, stride, m, work.panel);
  multiply_band(work.reflectors, m * kW, kBand, work.panel, m * kW, m, h, kBand);
  update_factor(t, h, scratch, work.panel);
  pack_update(work.rows, m, work.left, nullptr);
  multiply_band(work.left, stride * kW, m, work.panel, stride * kW, stride, work.rows, stride);
  pack_update(work.rows, m, work.left, work.right);
  update_trailing(a, size, o, work);
}

inline void copy_diagonal_block(const double* a, int64_t size, int64_t j, double* band) {
  for (int64_t c = 0; c < kBand; c++)
    for (int64_t d = 0; c + d < kBand; d++)
      band[(j + c) * (kBand + 1) + d] = a[((j + c) / kW * size + j + c + d) * kW + (j + c) % kW];
}

inline void reduce_to_band(double* a, int64_t size, double* storage, double* band) {
  BandWork work;
  work.panel = storage;
  work.reflectors = work.panel + size * kBand;
  work.rows = work.reflectors + size * kBand;
  work.left = work.rows + 2 * size * kBand;
  work.right = work.left + 2 * size * kBand;
  work.v = work.right + 2 * size * kBand;
  for (int64_t i = 0; i < size * (kBand + 1); i++) band[i] = 0;
  for (int64_t j = 0; j < size; j += kBand) {
    copy_diagonal_block(a, size, j, band);
    if (j + kBand < size) eliminate(a, size, j, work, band);
  }
}

// What later columns need of a column of L D: w = L D, l = L, and their derivatives by the shift.
struct BandEntry {
  DVec w, slope_w, l, slope_l;
};

// Entries d and d + 1 of column i without the diagonal's shift; columns[k] is column i - k.
inline void band_column(const double* band, const BandEntry* const* columns, int64_t reach,
                        int64_t d, DVec* value, DVec* slope) {
  DVec sum0 = DVec{} + band[d], sum1 = DVec{} + band[d + 1];
  DVec from_l0{}, from_l1{}, from_w0{}, from_w1{};
  const auto add = [&](int64_t k) {
    const BandEntry& left = columns[k][k];
    const BandEntry& first = columns[k][k + d];
    sum0 -= left.l * first.w;
    from_l0 += left.slope_l * first.w;
    from_w0 += left.l * first.slope_w;
    return &first + 1;
  };
  const int64_t both = reach < kBand - d - 1 ? reach : kBand - d - 1;
  for (int64_t k = 1; k <= both; k++) {
    const BandEntry& left = columns[k][k];
    const BandEntry& second = *add(k);
    sum1 -= left.l * second.w;
    from_l1 += left.slope_l * second.w;
    from_w1 += left.l * second.slope_w;
  }
  if (reach > both) add(both + 1);
  value[d] = sum0, value[d + 1] = sum1;
  slope[d] = -(from_l0 + from_w0), slope[d + 1] = -(from_l1 + from_w1);
}

// One register of shifts; ring: [kBand][kBand + 1] entries of the last kBand columns.
inline DVec resolvent_trace(const double* band, int64_t size, DVec shift, BandEntry* ring) {
  constexpr int64_t length = kBand + 1;
  const BandEntry* columns[length];
  DVec trace{}, value[length + 1], slope[length + 1];
  for (int64_t i = 0; i < size; i++) {
    const int64_t known = i < kBand ? i : kBand;
    for (int64_t k = 1; k <= known; k++) columns[k] = ring + (i - k) % kBand * length;
    for (int64_t d = 0; d + 1 < length; d += 2)
      band_column(band + i * length, columns, known < kBand - d ? known : kBand - d, d, value,
                  slope);
    value[kBand] = DVec{} + band[i * length + kBand];
    slope[kBand] = DVec{};
    value[0] += shift;
    slope[0] += 1.0;
    const DVec inverse = 1.0 / value[0];
    const DVec rate = slope[0] * inverse;
    trace += rate;
    BandEntry* out = ring + i % kBand * length;
    for (int64_t d = 1; d < length; d++) {
      const DVec l = value[d] * inverse;
      out[d] = {value[d], slope[d], l, slope[d] * inverse - l * rate};
    }
  }
  return trace;
}

inline void resolvent_traces(const double* band, int64_t size, const double* shifts,
                             double* traces) {
  BandEntry ring[kBand * (kBand + 1)];
  for (int64_t s = 0; s < kPoles; s += kW)
    store(traces + s, resolvent_trace(band, size, load(shifts + s), ring));
}

inline SpectralTable make_spectral_table() { return {reduce_to_band, resolvent_traces}; }
