// The bodies behind IsaTable, included once per instruction set by <name>.cpp inside a
// namespace of its own, with SIMCORE_VECTOR_BYTES and SIMCORE_MR set.
//
// Cost      micro: 2 * mr * panels * width * depth flops; per depth step `panels` vector loads and
//           mr broadcasts feed mr * panels multiply-adds, whose accumulators fill the registers.
// Numerics  products accumulate in T over at most one depth block; callers add blocks in float64
//           or in T as their header says. Lanes never mix, so the order of the sum over k is the
//           plain one and equal for every position of a row in a panel: identical layers give
//           bit-identical entries.
// No include guard and no includes but its own parts: the target pragma of the including file must
// cover templates of ours only, never the standard library's.

constexpr int kLoadBlock = 64;  // columns that are converted and centred at a time, kept in L1

template <typename T>
constexpr int kWidth = SIMCORE_VECTOR_BYTES / int(sizeof(T));

// Rows of the left operand per micro-kernel call; a panel of float64 may be narrower than
// SIMCORE_MR.
template <typename T>
constexpr int kMr = kWidth<T> < SIMCORE_MR ? kWidth<T> : SIMCORE_MR;

template <typename T>
struct Simd {
  typedef T vec __attribute__((vector_size(SIMCORE_VECTOR_BYTES)));
  typedef T loose __attribute__((vector_size(SIMCORE_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
};

template <typename T, int panels>
void micro(const T* a, const T* b, int64_t b_stride, int64_t depth, T* c, int64_t c_stride,
           bool accumulate) {
  using vec = typename Simd<T>::vec;
  using loose = typename Simd<T>::loose;
  constexpr int width = kWidth<T>, mr = kMr<T>;
  vec sum[mr][panels];
#pragma GCC unroll 16
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 16
    for (int j = 0; j < panels; j++) sum[i][j] = vec{};
  for (int64_t k = 0; k < depth; k++, a += width, b += width) {
    vec column[panels];
#pragma GCC unroll 16
    for (int j = 0; j < panels; j++) column[j] = *reinterpret_cast<const loose*>(b + j * b_stride);
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 16
      for (int j = 0; j < panels; j++) sum[i][j] += a[i] * column[j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < mr; i++)
#pragma GCC unroll 16
    for (int j = 0; j < panels; j++) {
      loose* out = reinterpret_cast<loose*>(c + i * c_stride + j * width);
      *out = accumulate ? *out + sum[i][j] : sum[i][j];
    }
}

template <typename T>
void squared_lengths(const T* panel, int64_t depth, T* lengths, bool accumulate) {
  using vec = typename Simd<T>::vec;
  using loose = typename Simd<T>::loose;
  vec sum{};
  for (int64_t k = 0; k < depth; k++, panel += kWidth<T>) {
    const vec column = *reinterpret_cast<const loose*>(panel);
    sum += column * column;
  }
  loose* out = reinterpret_cast<loose*>(lengths);
  *out = accumulate ? *out + sum : sum;
}

// This loop needs the instruction set only for converting registers of T to float64.
template <typename T>
void add_block(const T* block, int64_t rows, int64_t cols, double* out, int64_t out_stride) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) out[i * out_stride + j] += double(block[i * cols + j]);
}

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(Float16 x) { return static_cast<float>(x); }
inline float widen(BFloat16 x) { return x.to_float(); }

// centred(i, k) for k in [k, k + count) of the row that starts at `row`.
template <typename T, typename Source>
void load_centred(const Source* row, int64_t col_stride, const Centring<T>& c, int64_t k,
                  int64_t count, T* out) {
  const T* hi = c.mean_hi.data() + k;
  const T* lo = c.mean_lo.data() + k;
  const T scale = c.scale;
  if (col_stride == 1) {
    const Source* x = row + k;
    for (int64_t j = 0; j < count; j++) out[j] = (T(widen(x[j])) * scale - hi[j]) - lo[j];
  } else {
    for (int64_t j = 0; j < count; j++)
      out[j] = (T(widen(row[(k + j) * col_stride])) * scale - hi[j]) - lo[j];
  }
}

// Calls f with the layer's data pointer in its real type.
template <typename F>
void with_source(const LayerView& layer, const F& f) {
  switch (layer.dtype) {
    case DType::f16: return f(static_cast<const Float16*>(layer.data));
    case DType::bf16: return f(static_cast<const BFloat16*>(layer.data));
    case DType::f32: return f(static_cast<const float*>(layer.data));
    case DType::f64: return f(static_cast<const double*>(layer.data));
  }
}

// a, b -> a0 b0 a1 b1 ... (low halves, then high halves).
template <typename T, int... i>
inline void interleave(typename Simd<T>::vec& a, typename Simd<T>::vec& b, IntSequence<i...>) {
  constexpr int w = sizeof...(i);
  const auto low = __builtin_shufflevector(a, b, (i % 2 ? w + i / 2 : i / 2)...);
  const auto high = __builtin_shufflevector(a, b, (w / 2 + (i % 2 ? w + i / 2 : i / 2))...);
  a = low;
  b = high;
}

// Transposes a width x width block held in registers: log2(width) perfect shuffles.
template <typename T>
inline void transpose(typename Simd<T>::vec (&rows)[kWidth<T>]) {
  using vec = typename Simd<T>::vec;
  constexpr int w = kWidth<T>;
#pragma GCC unroll 16
  for (int stage = 1; stage < w; stage *= 2) {
    vec next[w];
#pragma GCC unroll 16
    for (int i = 0; i < w / 2; i++) {
      next[2 * i] = rows[i];
      next[2 * i + 1] = rows[i + w / 2];
      interleave<T>(next[2 * i], next[2 * i + 1], MakeIntSequence<w>{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < w; i++) rows[i] = next[i];
  }
}

// panel[k][r] = block[r][k] for a [width, kLoadBlock] block with `count` columns filled.
template <typename T>
void store_transposed(const T (&block)[kWidth<T>][kLoadBlock], int64_t count, T* panel) {
  using vec = typename Simd<T>::vec;
  using loose = typename Simd<T>::loose;
  constexpr int w = kWidth<T>;
  int64_t k = 0;
  for (; k + w <= count; k += w) {
    vec rows[w];
#pragma GCC unroll 16
    for (int r = 0; r < w; r++) rows[r] = *reinterpret_cast<const loose*>(&block[r][k]);
    transpose<T>(rows);
#pragma GCC unroll 16
    for (int r = 0; r < w; r++) *reinterpret_cast<loose*>(panel + (k + r) * w) = rows[r];
  }
  for (; k < count; k++)
    for (int r = 0; r < w; r++) panel[k * w + r] = block[r][k];
}

template <typename T>
void pack_rows(const LayerView& layer, const Centring<T>& centring, int64_t row, int64_t rows,
               T* panel, double* norms) {
  constexpr int w = kWidth<T>;
  alignas(64) T block[w][kLoadBlock] = {};
  for (int r = 0; r < w; r++) norms[r] = 0;
  for (int64_t k = 0; k < layer.width; k += kLoadBlock) {
    const int64_t count = layer.width - k < kLoadBlock ? layer.width - k : kLoadBlock;
    with_source(layer, [&](const auto* data) {
      for (int64_t r = 0; r < rows; r++)
        load_centred(data + (row + r) * layer.row_stride, layer.col_stride, centring, k, count,
                     block[r]);
    });
    T* out = panel + k * w;
    store_transposed<T>(block, count, out);
    for (int64_t j = 0; j < count; j++)
      for (int r = 0; r < w; r++) norms[r] += double(out[j * w + r]) * double(out[j * w + r]);
  }
}

// Reads one register of centred entries, from `row` on.
template <typename T, typename Source>
inline void centre_register(const Source* row, const T* hi, const T* lo, T scale, T* out) {
  for (int j = 0; j < kWidth<T>; j++) out[j] = (T(widen(row[j])) * scale - hi[j]) - lo[j];
}

template <typename T>
void pack_columns(const LayerView& layer, const Centring<T>& centring, int64_t row, int64_t rows,
                  int64_t col, int64_t cols, T* panels, int64_t panel_stride) {
  constexpr int64_t w = kWidth<T>, together = kMaxPanels;
  with_source(layer, [&](const auto* data) {
    data += row * layer.row_stride;
    int64_t k = 0;
    // Several registers of a row are read at a time, because the next row lies a page or so away.
    for (; layer.col_stride == 1 && k + together * w <= cols; k += together * w) {
      const T* hi = centring.mean_hi.data() + col + k;
      const T* lo = centring.mean_lo.data() + col + k;
      T* out = panels + k / w * panel_stride;
      for (int64_t i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int64_t q = 0; q < together; q++)
          centre_register<T>(data + i * layer.row_stride + col + k + q * w, hi + q * w, lo + q * w,
                             centring.scale, out + q * panel_stride + i * w);
    }
    for (; k < cols; k += w) {
      const int64_t count = cols - k < w ? cols - k : w;
      T* out = panels + k / w * panel_stride;
      for (int64_t i = 0; i < rows; i++, out += w) {
        load_centred(data + i * layer.row_stride, layer.col_stride, centring, col + k, count, out);
        for (int64_t j = count; j < w; j++) out[j] = 0;
      }
    }
  });
}

template <typename T>
void pack_plain(const T* source, int64_t stride, int64_t rows, int64_t depth, T* panel) {
  constexpr int w = kWidth<T>;
  alignas(64) T block[w][kLoadBlock] = {};
  for (int64_t k = 0; k < depth; k += kLoadBlock) {
    const int64_t count = depth - k < kLoadBlock ? depth - k : kLoadBlock;
    for (int64_t r = 0; r < rows; r++)
      for (int64_t j = 0; j < count; j++) block[r][j] = source[r * stride + k + j];
    store_transposed<T>(block, count, panel + k * w);
  }
}

// Prefetch distance: the entries of a row come in any order, and the row is new to the caches.
constexpr int kPrefetchAhead = 24;

template <typename T>
void gather_entries(const T* row, int64_t layers, const int32_t* index, int64_t depth, T* panels) {
  using loose = typename Simd<T>::loose;
  constexpr int w = kWidth<T>;
  const int64_t whole = layers / w, rest = layers % w, panel = depth * w;
  for (int64_t k = 0; k < depth; k++, panels += w) {
    if (k + kPrefetchAhead < depth)
      __builtin_prefetch(row + int64_t(index[k + kPrefetchAhead]) * layers);
    const T* entry = row + int64_t(index[k]) * layers;
    for (int64_t q = 0; q < whole; q++)
      *reinterpret_cast<loose*>(panels + q * panel) =
          *reinterpret_cast<const loose*>(entry + q * w);
    if (rest == 0) continue;
    for (int64_t l = 0; l < w; l++)
      panels[whole * panel + l] = l < rest ? entry[whole * w + l] : T(0);
  }
}

// exp(x) for x <= 0, a register at a time: x = m ln2 + r, |r| <= ln2 / 2; Taylor series of e^r to
// the order where the next term is below half a unit in the last place; the power of two goes into
// the exponent bits. Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the sum.
inline Simd<float>::vec exp_negative(Simd<float>::vec x) {
  using vec = Simd<float>::vec;
  typedef int32_t bits __attribute__((vector_size(SIMCORE_VECTOR_BYTES)));
  const vec lowest = vec{} - 87.0f;
  x = x < lowest ? lowest : x;
  const vec shifted = x * 1.44269504f + 12582912.0f;
  const vec m = shifted - 12582912.0f;
  const vec r = (x - m * 0.693359375f) + m * 2.12194440e-4f;
  vec p = vec{} + 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const bits exponent = (__builtin_bit_cast(bits, shifted) + 127) << 23;
  return p * __builtin_bit_cast(vec, exponent);
}

inline Simd<double>::vec exp_negative(Simd<double>::vec x) {
  for (int i = 0; i < kWidth<double>; i++) x[i] = __builtin_exp(x[i]);
  return x;
}

template <typename T>
inline T squared_distance(T norm_i, T norm_j, T dot) {
  const T d = norm_i + norm_j - 2 * dot;
  return d > 0 ? d : T(0);
}

template <typename T>
void rbf(T* g, int64_t rows, int64_t cols, const T* norm_i, const T* norm_j, T gamma, T shift) {
  using vec = typename Simd<T>::vec;
  using loose = typename Simd<T>::loose;
  const vec zero{};
  for (int64_t i = 0; i < rows; i++, g += cols)
    for (int64_t j = 0; j < cols; j += kWidth<T>) {
      loose* out = reinterpret_cast<loose*>(g + j);
      const vec norms = *reinterpret_cast<const loose*>(norm_j + j) + norm_i[i];
      const vec distance = norms - *out * T(2);
      *out = exp_negative((distance > zero ? distance : zero) * -gamma) - shift;
    }
}

inline float root(float x) { return __builtin_sqrtf(x); }
inline double root(double x) { return __builtin_sqrt(x); }

template <typename T>
void distance(T* g, int64_t rows, int64_t cols, const T* norm_i, const T* norm_j, T shift) {
  for (int64_t i = 0; i < rows; i++, g += cols) {
    const T norm = norm_i[i];
    for (int64_t j = 0; j < cols; j++) g[j] = root(squared_distance(norm, norm_j[j], g[j])) - shift;
  }
}

template <typename T>
int64_t select(const T* g, int64_t begin, int64_t end, T norm_i, const T* norm_j, T lo, T hi,
               T* out, int64_t* below) {
  int64_t kept = 0, under = 0;
  for (int64_t j = begin; j < end; j++) {
    const T d = squared_distance(norm_i, norm_j[j], g[j]);
    under += d < lo;
    out[kept] = d;  // overwritten unless d is kept: no branch to mispredict
    kept += (d >= lo) & (d <= hi);
  }
  *below += under;
  return kept;
}

// clang-format off: the later ones build on those before
#include "core/math/coupling_math.h"
#include "cpu/isa/attention_impl.h"
#include "cpu/isa/assignment_impl.h"
#include "cpu/isa/coupling_impl.h"
// clang-format on

template <typename T>
IsaTable<T> make_table(const char* name) {
  return {name,
          kWidth<T>,
          kMr<T>,
          {micro<T, 1>, micro<T, 2>, micro<T, 3>},
          add_block<T>,
          pack_rows<T>,
          pack_columns<T>,
          squared_lengths<T>,
          pack_plain<T>,
          gather_entries<T>,
          rbf<T>,
          distance<T>,
          select<T>,
          load<T>,
          flaws<T>,
          place_of_largest<T>,
          unit_rows<T>,
          {{mixture_sums<T>, 1, kMixtureColumns},
           {tile_sums<T, ProductTerm>, ProductTerm::rows, kTileColumns},
           {tile_sums<T, SquaredDifferenceTerm>, SquaredDifferenceTerm::rows, kTileColumns}},
          {couple<T, false>, couple<T, true>},
          {couple_gradients<T, false>, couple_gradients<T, true>},
          least_two<T>,
          relax<T>};
}
