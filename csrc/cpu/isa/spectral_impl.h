// The bodies behind SpectralTable, included once per instruction set after isa_impl.h, whose
// register types and micro-kernel they use.
//
// Math      reduce_to_band: block bidiagonalisation. For each block of b = kBand columns the part
//           from the diagonal on is factored as Q R, Q = I - V T V^T, then the rows right of it as
//           L P^T, P = I - U S U^T; the rest becomes Q^T M P, one update of rank 2 b:
//             W = (V T)^T M,  Z = (M U - V (W U)) S,  M <- M - V W - Z U^T.
//           resolvent_traces: with A + sI = L D L^T, tr (A + sI)^-1 = d/ds log det = sum_i D_i' /
//           D_i; derivatives are carried along the factorisation, forward.
// Layout    column panels: (i, k) of a [rows, .] matrix at [k / width][i][k % width], which is an
//           operand of the micro-kernel as it stands; row panels: (i, k) at
//           [i / width][k][i % width].
// Cost      4 rows^2 (cols - rows / 3) flops, all but rows^2 b of them in micro-kernels; per block
//           the matrix is read twice and updated once. Traces: 1.5 rows b^2 multiply-adds a shift,
//           one shift a lane.
// Numerics  the reduction in float32, backward stable: every singular value within a few eps of the
//           largest. Traces in float64.
// No include guard and no includes, as in isa_impl.h.

using FVec = Simd<float>::vec;
using FLoose = Simd<float>::loose;
using DVec = Simd<double>::vec;
using DLoose = Simd<double>::loose;
constexpr int64_t kW = kWidth<float>;
constexpr int64_t kRows = kMr<float>;
constexpr int64_t kBand = kW == 16 ? 32 : 24;
constexpr int64_t kDepth2 = 2 * kBand;
constexpr int kGroupPanels = kBand / kW < kMaxPanels ? int(kBand / kW) : kMaxPanels;
constexpr int64_t kGroup = kGroupPanels * kW;  // columns of one micro-kernel call
static_assert(kBand % kGroup == 0 && kBand % kW == 0 && kPoles % kWidth<double> == 0);

inline FVec load_f(const float* p) { return *reinterpret_cast<const FLoose*>(p); }
inline void store_f(float* p, FVec v) { *reinterpret_cast<FLoose*>(p) = v; }
inline DVec load_d(const double* p) { return *reinterpret_cast<const DLoose*>(p); }
inline void store_d(double* p, DVec v) { *reinterpret_cast<DLoose*>(p) = v; }

// c[rows, columns] (+)= left^T right over `depth`, row-major. left: panels of `left_stride` entries
// with the rows of c in their lanes; right: panels of `right_stride` entries with its columns.
inline void multiply(const float* left, int64_t left_stride, int64_t rows, const float* right,
                     int64_t right_stride, int64_t columns, int64_t depth, float* c,
                     int64_t c_stride, bool accumulate) {
  for (int64_t j = 0; j < columns; j += kGroup)
    for (int64_t i = 0; i < rows; i += kRows)
      // Row i is lane i % kW of panel i / kW; j is the first lane of its panel.
      micro<float, kGroupPanels>(left + i / kW * left_stride + i % kW,
                                 right + j / kW * right_stride, right_stride, depth,
                                 c + i * c_stride + j, c_stride, accumulate);
}

// Copies row-major [rows, columns] to column panels of `stride` entries.
inline void to_column_panels(const float* source, int64_t source_stride, int64_t rows,
                             int64_t columns, float* panels, int64_t stride) {
  for (int64_t q = 0; q < columns / kW; q++)
    for (int64_t i = 0; i < rows; i++)
      store_f(panels + q * stride + i * kW, load_f(source + i * source_stride + q * kW));
}

// Copies row-major [rows, depth] to row panels of `stride` entries.
inline void to_row_panels(const float* source, int64_t source_stride, int64_t rows, int64_t depth,
                          float* panels, int64_t stride) {
  for (int64_t i = 0; i < rows; i += kW)
    pack_plain(source + i * source_stride, source_stride, kW, depth, panels + i / kW * stride);
}

// Copies rows [0, kW) of column panels, `stride` entries each, to one row panel [columns][kW].
inline void transpose_rows(const float* panels, int64_t stride, int64_t columns, float* row_panel) {
  for (int64_t k = 0; k < columns; k += kW) {
    FVec tile[kW];
#pragma GCC unroll 16
    for (int64_t r = 0; r < kW; r++) tile[r] = load_f(panels + k / kW * stride + r * kW);
    transpose<float>(tile);
#pragma GCC unroll 16
    for (int64_t r = 0; r < kW; r++) store_f(row_panel + (k + r) * kW, tile[r]);
  }
}

// v[0, m) <- the reflector I - tau v v^T with v[c] = 1 and zeros above that makes column c of the
// panel zero below its entry c. Returns tau.
inline float reflector(const float* panel, int64_t m, int64_t c, float* v) {
  // Column c is lane c % kW of panel c / kW, and a panel is [m][kW].
  const float* column = panel + c / kW * m * kW + c % kW;
  double below = 0;
  for (int64_t i = 0; i < c; i++) v[i] = 0;
  for (int64_t i = c + 1; i < m; i++) v[i] = column[i * kW];
  for (int64_t i = c + 1; i < m; i++) below += double(v[i]) * double(v[i]);
  v[c] = 1;
  if (below == 0) return 0;
  const double head = column[c * kW], norm = __builtin_sqrt(head * head + below);
  const double beta = head > 0 ? -norm : norm;
  const float scale = float(1 / (head - beta));
  for (int64_t i = c + 1; i < m; i++) v[i] *= scale;
  return float((beta - head) / beta);
}

// Applies panel <- (I - tau v v^T) panel to the columns from c's register on. Entries below the
// diagonal of finished columns are never read again.
inline void reflect(float* panel, int64_t m, int64_t c, const float* v, float tau) {
  for (int64_t q = c / kW; q < kBand / kW; q++) {
    float* p = panel + q * m * kW;
    FVec sums[4] = {};
    int64_t i = c;
    for (; i + 4 <= m; i += 4)
#pragma GCC unroll 4
      for (int64_t r = 0; r < 4; r++) sums[r] += v[i + r] * load_f(p + (i + r) * kW);
    for (; i < m; i++) sums[0] += v[i] * load_f(p + i * kW);
    const FVec dot = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * tau;
    for (i = c; i < m; i++) store_f(p + i * kW, load_f(p + i * kW) - v[i] * dot);
  }
}

// One side of a step: Q = I - V T V^T of a [length, kBand] panel.
struct Reflectors {
  float* panel;            // column panels [length, kBand]: the matrix to factor, then V T
  float* columns;          // V in column panels
  float* rows;             // V row-major [length, kBand]
  float t[kBand * kBand];  // T, row-major
};

// Computes T, which is upper triangular, from G = V^T V and the taus.
inline void compact_factor(const float* gram, const float* taus, float* t) {
  for (int64_t i = 0; i < kBand * kBand; i++) t[i] = 0;
  for (int64_t c = 0; c < kBand; c++) {
    t[c * kBand + c] = taus[c];
    for (int64_t r = 0; r < c; r++) {
      float sum = 0;
      for (int64_t k = r; k < c; k++) sum += t[r * kBand + k] * gram[k * kBand + c];
      t[r * kBand + c] = -taus[c] * sum;
    }
  }
}

// Factors side.panel [m, kBand] = Q R; r(i, c) is called for the entries of R.
template <typename Store>
void factor(Reflectors& side, int64_t m, float* v, const Store& r) {
  float taus[kBand], gram[kBand * kBand];
  for (int64_t c = 0; c < kBand; c++) {
    taus[c] = reflector(side.panel, m, c, v);
    reflect(side.panel, m, c, v, taus[c]);
    float* column = side.columns + c / kW * m * kW + c % kW;
    for (int64_t i = 0; i < m; i++) column[i * kW] = v[i];
    for (int64_t i = 0; i <= c; i++) r(i, c, side.panel[(c / kW * m + i) * kW + c % kW]);
  }
  for (int64_t q = 0; q < kBand / kW; q++)
    for (int64_t i = 0; i < m; i++)
      store_f(side.rows + i * kBand + q * kW, load_f(side.columns + (q * m + i) * kW));
  multiply(side.columns, m * kW, kBand, side.columns, m * kW, kBand, m, gram, kBand, false);
  compact_factor(gram, taus, side.t);
}

struct BandWork {
  Reflectors left, right;
  float* v;          // [longest]
  float* w;          // W row-major [kBand, columns]
  float* w_rows;     // W in row panels [columns][kW]
  float* update;     // right operand of the update: [columns / kW][2 kBand][kW], W over U^T
  float* y;          // M U, then Z: row-major [rows, kBand]
  float* scratch;    // row panels [rows / kW][2 kBand][kW]
  float* row_panel;  // [columns][kW]
};

// Computes W = (V T)^T M2 and its two packed forms.
inline void form_w(const float* m2, int64_t panel, int64_t m, int64_t columns, BandWork& work) {
  alignas(64) float t[kBand * kBand];
  to_column_panels(work.left.t, kBand, kBand, kBand, t, kBand * kW);
  to_row_panels(work.left.rows, kBand, m, kBand, work.scratch, kBand * kW);
  multiply(work.scratch, kBand * kW, m, t, kBand * kW, kBand, kBand, work.y, kBand, false);
  to_column_panels(work.y, kBand, m, kBand, work.left.panel, m * kW);
  multiply(work.left.panel, m * kW, kBand, m2, panel, columns, m, work.w, columns, false);
  to_column_panels(work.w, columns, kBand, columns, work.update, kDepth2 * kW);
  to_row_panels(work.w, columns, kBand, columns, work.w_rows, columns * kW);
}

// m[rows, columns] -= left^T right, m in column panels of `panel` entries.
inline void subtract(float* m, int64_t panel, int64_t rows, int64_t columns, const float* left,
                     int64_t left_stride, const float* right, int64_t depth) {
  alignas(64) float block[kRows * kGroup];
  for (int64_t j = 0; j < columns; j += kGroup)
    for (int64_t i = 0; i < rows; i += kRows) {
      micro<float, kGroupPanels>(left + i / kW * left_stride + i % kW, right + j * kDepth2,
                                 kDepth2 * kW, depth, block, kGroup, false);
#pragma GCC unroll 4
      for (int64_t q = 0; q < kGroupPanels; q++)
#pragma GCC unroll 16
        for (int64_t r = 0; r < kRows; r++) {
          float* out = m + (j / kW + q) * panel + (i + r) * kW;
          store_f(out, load_f(out) - load_f(block + r * kGroup + q * kW));
        }
    }
}

// Computes Z = (M3 U - V3 (W U)) S into work.y; m3 and v3 are the rows from kBand on.
inline void form_z(const float* m3, int64_t panel, int64_t rows, int64_t columns, BandWork& work) {
  alignas(64) float wu[kBand * kBand], packed[kBand * kBand];
  const float* u = work.right.columns;
  for (int64_t i = 0; i < rows; i += kW) {
    transpose_rows(m3 + i * kW, panel, columns, work.row_panel);
    multiply(work.row_panel, columns * kW, kW, u, columns * kW, kBand, columns, work.y + i * kBand,
             kBand, false);
  }
  multiply(work.w_rows, columns * kW, kBand, u, columns * kW, kBand, columns, wu, kBand, false);
  for (float& value : wu) value = -value;
  to_column_panels(wu, kBand, kBand, kBand, packed, kBand * kW);
  to_row_panels(work.left.rows + kBand * kBand, kBand, rows, kBand, work.scratch, kBand * kW);
  multiply(work.scratch, kBand * kW, rows, packed, kBand * kW, kBand, kBand, work.y, kBand, true);
  to_row_panels(work.y, kBand, rows, kBand, work.scratch, kBand * kW);
  to_column_panels(work.right.t, kBand, kBand, kBand, packed, kBand * kW);
  multiply(work.scratch, kBand * kW, rows, packed, kBand * kW, kBand, kBand, work.y, kBand, false);
}

// Takes one step at k: eliminates in columns [k, k + kBand), then in the rows beside them.
inline void eliminate(float* m, int64_t rows, int64_t cols, int64_t k, BandWork& work, double* b) {
  const int64_t length = rows - k, columns = cols - k - kBand, panel = rows * kW;
  // Entry (i, j) of the band lies in row k + i of b, j - i places right of the diagonal.
  const auto entry = [&](int64_t i, int64_t j) -> double& {
    return b[(k + i) * (kBand + 1) + j - i];
  };
  for (int64_t q = 0; q < kBand / kW; q++)
    for (int64_t i = 0; i < length; i++)
      store_f(work.left.panel + (q * length + i) * kW,
              load_f(m + (k / kW + q) * panel + (k + i) * kW));
  factor(work.left, length, work.v, [&](int64_t i, int64_t c, float r) { entry(i, c) = r; });
  if (columns == 0) return;
  float* m2 = m + (k + kBand) / kW * panel + k * kW;
  form_w(m2, panel, length, columns, work);
  to_row_panels(work.left.rows, kBand, kBand, kBand, work.scratch, kBand * kW);
  subtract(m2, panel, kBand, columns, work.scratch, kBand * kW, work.update, kBand);
  for (int64_t i = 0; i < kBand; i += kW)
    transpose_rows(m2 + i * kW, panel, columns, work.right.panel + i * columns);
  factor(work.right, columns, work.v,
         [&](int64_t j, int64_t i, float r) { entry(i, kBand + j) = r; });
  const int64_t below = length - kBand;
  if (below == 0) return;
  float* m3 = m2 + kBand * kW;
  form_z(m3, panel, below, columns, work);
  for (int64_t j = 0; j < columns; j += kW)
    pack_plain(work.right.rows + j * kBand, kBand, kW, kBand,
               work.update + j * kDepth2 + kBand * kW);
  for (int64_t i = 0; i < below; i += kW) {
    float* out = work.scratch + i * kDepth2;
    pack_plain(work.left.rows + (kBand + i) * kBand, kBand, kW, kBand, out);
    pack_plain(work.y + i * kBand, kBand, kW, kBand, out + kBand * kW);
  }
  subtract(m3, panel, below, columns, work.scratch, kDepth2 * kW, work.update, kDepth2);
}

inline int64_t band_work(int64_t rows, int64_t cols) {
  return kBand * (3 * rows + 3 * cols) + cols + kBand * cols * 2 + kDepth2 * cols + kBand * rows +
         kDepth2 * rows + kW * cols;
}

inline void reduce_to_band(float* m, int64_t rows, int64_t cols, float* storage, double* band) {
  BandWork work;
  const auto take = [&](int64_t count) {
    float* const begin = storage;
    storage += count;
    return begin;
  };
  const auto give = [&](Reflectors& side, int64_t length) {
    side.panel = take(kBand * length);
    side.columns = take(kBand * length);
    side.rows = take(kBand * length);
  };
  give(work.left, rows);
  give(work.right, cols);
  work.v = take(cols);
  work.w = take(kBand * cols);
  work.w_rows = take(kBand * cols);
  work.update = take(kDepth2 * cols);
  work.y = take(kBand * rows);
  work.scratch = take(kDepth2 * rows);
  work.row_panel = take(kW * cols);
  for (int64_t i = 0; i < rows * (kBand + 1); i++) band[i] = 0;
  for (int64_t k = 0; k < rows; k += kBand) eliminate(m, rows, cols, k, work, band);
}

// The entries of a finished column that later columns read: w = L D, l = L, and their derivatives
// with respect to the shift.
struct BandEntry {
  DVec w, slope_w, l, slope_l;
};

// Computes entries d and d + 1 of column i without the diagonal's shift; column i - k is in
// columns[k].
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

// Returns the traces for one register of shifts; ring: [kBand][kBand + 1] entries of the last kBand
// columns.
inline DVec resolvent_trace(const double* band, int64_t size, DVec shift, BandEntry* ring) {
  constexpr int64_t length = kBand + 1;
  const BandEntry* columns[length];
  DVec trace{}, value[length + 1], slope[length + 1];
  for (int64_t i = 0; i < size; i++) {
    const int64_t known = i < kBand ? i : kBand;
    // The ring holds column i - k in the slot of its number modulo kBand.
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
  for (int64_t s = 0; s < kPoles; s += kWidth<double>)
    store_d(traces + s, resolvent_trace(band, size, load_d(shifts + s), ring));
}

inline SpectralTable make_spectral_table() {
  return {kBand, band_work, reduce_to_band, resolvent_traces};
}
