// Inner loops of the attention measures, included by isa_impl.h.
//
// Cost      per pair of heads and weight: js 17 operations of a register, of which 10 are
//           multiply-adds; pearson one, frobenius two. A tile of kTileHeads times 4 (512 bits) or
//           2 to 3 heads takes one load for every two of them. With w numbers a register, the
//           totals of w sums cost 2 (w - 1) shuffles and w - 1 additions: a tenth of the tile at
//           kTileColumns.
// Numerics  the logarithm is good to 1.4e-7 relative in float32 and 4e-16 in float64, for normal
//           numbers. The logarithm of a subnormal number is a finite value near that of the
//           smallest normal number, and 0 times that value is 0. A sum runs over at most one block
//           of columns in T, in kSums * width parts (js) or width parts (the others), and goes to
//           float64. The same column takes the same instructions whatever the pair: F(p) and
//           F((p + p) / 2) are bit-equal.

constexpr int kSums = 4;  // independent sums of a row, to hide the latency of an addition
constexpr int64_t kMixtureColumns = 256, kTileColumns = 1024;
constexpr int kTileHeads = 4;  // of q

// The unit of scaled_log. In float32 it is ln2 / 2^23, so that the exponent bits of a number need
// no conversion.
template <typename T>
constexpr double kLogUnit = sizeof(T) == 4 ? 8.262958288192749e-8 : 0.6931471805599453;

// log(x) / kLogUnit. x = 2^e m with m in [2/3, 4/3), log x = e ln2 + r Q(r), r = m - 1; Q of degree
// 8 is the relative minimax approximation of log(1 + r) / r (Remez; 2.6e-8), here times 2^23 / ln2.
inline Simd<float>::vec scaled_log(Simd<float>::vec x) {
  using vec = Simd<float>::vec;
  typedef int32_t bits __attribute__((vector_size(SIMCORE_VECTOR_BYTES)));
  const bits exponent = (__builtin_bit_cast(bits, x) - 0x3f2aaaab) & -0x00800000;  // e * 2^23
  const vec r = __builtin_bit_cast(vec, __builtin_bit_cast(bits, x) - exponent) - 1.0f;
  vec q = vec{} + 1701099.75f;
  q = q * r - 1864126.375f;
  q = q * r + 1692813.875f;
  q = q * r - 1986309.375f;
  q = q * r + 2421886.25f;
  q = q * r - 3026522.25f;
  q = q * r + 4034047.75f;
  q = q * r - 6051093.5f;
  q = q * r + 12102203.0f;
  return q * r + __builtin_convertvector(exponent, vec);
}

// scaled_log in float64, for m in the same range: with s = r / (2 + r), |s| <= 1/5,
// log(1 + r) = 2 (s + s^3 / 3 + s^5 / 5 + ...). Few instruction sets convert 64-bit integers or
// shift them arithmetically: the biased exponent is shifted as an unsigned number and joins the
// mantissa of 2^52.
inline Simd<double>::vec scaled_log(Simd<double>::vec x) {
  using vec = Simd<double>::vec;
  typedef uint64_t bits __attribute__((vector_size(SIMCORE_VECTOR_BYTES)));
  constexpr uint64_t one = 0x3ff0000000000000, two_thirds = 0x3fe5555555555555;
  constexpr uint64_t two_52 = 0x4330000000000000;
  constexpr double c = 2 / kLogUnit<double>;
  const bits biased = (__builtin_bit_cast(bits, x) + (one - two_thirds)) >> 52;
  const vec e = __builtin_bit_cast(vec, biased | two_52) - (4503599627370496.0 + 1023.0);
  const vec r = __builtin_bit_cast(vec, __builtin_bit_cast(bits, x) - (biased << 52) + one) - 1.0;
  const vec s = r / (r + 2.0), z = s * s;
  vec q = vec{} + c / 21;
  q = q * z + c / 19;
  q = q * z + c / 17;
  q = q * z + c / 15;
  q = q * z + c / 13;
  q = q * z + c / 11;
  q = q * z + c / 9;
  q = q * z + c / 7;
  q = q * z + c / 5;
  q = q * z + c / 3;
  q = q * z + c;
  return q * s + e;
}

template <typename T>
inline typename Simd<T>::vec read(const T* row) {
  return *reinterpret_cast<const typename Simd<T>::loose*>(row);
}

// The inputs of js are halves of the weights: their sum is the mixture, rounded exactly as
// (p + q) / 2.
template <typename vec>
inline vec add_mixture(vec sum, vec p, vec q) {
  const vec m = p + q;
  return sum + m * scaled_log(m);
}

// Adds the js terms of one row of p with the rows of q.
template <typename T>
void mixture_sums(const T* p, int64_t, const T* q, int64_t q_rows, int64_t stride, int64_t length,
                  double* sums, int64_t) {
  using vec = typename Simd<T>::vec;
  constexpr int w = kWidth<T>;
  for (int64_t r = 0; r < q_rows; r++, q += stride) {
    vec sum[kSums] = {};
    int64_t k = 0;
    for (; k + kSums * w <= length; k += kSums * w)
#pragma GCC unroll 16
      for (int i = 0; i < kSums; i++)
        sum[i] = add_mixture(sum[i], read(p + k + i * w), read(q + k + i * w));
    for (; k < length; k += w) sum[0] = add_mixture(sum[0], read(p + k), read(q + k));
    const vec parts = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    double total = 0;
    for (int i = 0; i < w; i++) total += double(parts[i]);
    sums[r] += total * kLogUnit<T>;
  }
}

// The term of a pair of weights, and the number of rows of p in a tile, whose sums fill the
// registers.
struct ProductTerm {
  static constexpr int rows = SIMCORE_VECTOR_BYTES == 64 ? 4 : 3;
  template <typename vec>
  static vec add(vec sum, vec p, vec q) {
    return sum + p * q;
  }
};
struct SquaredDifferenceTerm {
  static constexpr int rows = SIMCORE_VECTOR_BYTES == 64 ? 4 : 2;
  template <typename vec>
  static vec add(vec sum, vec p, vec q) {
    const vec d = p - q;
    return sum + d * d;
  }
};

// Totals of w registers, in their order, as one: each step adds halves of two registers and lays
// the results side by side.
template <typename T>
inline typename Simd<T>::vec totals(typename Simd<T>::vec (&sums)[kWidth<T>]) {
#pragma GCC unroll 16
  for (int half = kWidth<T> / 2; half > 0; half /= 2)
#pragma GCC unroll 16
    for (int i = 0; i < half; i++) {
      interleave<T>(sums[i], sums[i + half], MakeIntSequence<kWidth<T>>{});
      sums[i] += sums[i + half];
    }
  return sums[0];
}

// Sums the terms of rows of p with kTileHeads rows of q; every pair has a register of its own.
template <typename T, typename Term>
inline void register_tile(const T* const (&p)[Term::rows], const T* const (&q)[kTileHeads],
                          int64_t length, T* out) {
  using vec = typename Simd<T>::vec;
  constexpr int w = kWidth<T>, rows = Term::rows, count = rows * kTileHeads;
  constexpr int padded = (count + w - 1) / w * w;
  vec sum[padded] = {};
  for (int64_t k = 0; k < length; k += w) {
    vec row[rows];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) row[i] = read(p[i] + k);
#pragma GCC unroll 16
    for (int j = 0; j < kTileHeads; j++) {
      const vec column = read(q[j] + k);
#pragma GCC unroll 16
      for (int i = 0; i < rows; i++)
        sum[i * kTileHeads + j] = Term::add(sum[i * kTileHeads + j], row[i], column);
    }
  }
#pragma GCC unroll 16
  for (int first = 0; first < padded; first += w) {
    vec part[w];
#pragma GCC unroll 16
    for (int i = 0; i < w; i++) part[i] = sum[first + i];
    *reinterpret_cast<typename Simd<T>::loose*>(out + first) = totals<T>(part);
  }
}

// The last row stands in for rows that a tile lacks; their sums are left out.
template <typename T, typename Term>
void tile_sums(const T* p, int64_t p_rows, const T* q, int64_t q_rows, int64_t stride,
               int64_t length, double* sums, int64_t sums_stride) {
  const T *left[Term::rows], *right[kTileHeads];
  for (int i = 0; i < Term::rows; i++) left[i] = p + (i < p_rows ? i : p_rows - 1) * stride;
  T out[Term::rows * kTileHeads + kWidth<T>] = {};
  for (int64_t first = 0; first < q_rows; first += kTileHeads) {
    const int64_t heads = q_rows - first < kTileHeads ? q_rows - first : kTileHeads;
    for (int j = 0; j < kTileHeads; j++)
      right[j] = q + (first + (j < heads ? j : heads - 1)) * stride;
    register_tile<T, Term>(left, right, length, out);
    for (int64_t i = 0; i < p_rows; i++)
      for (int64_t j = 0; j < heads; j++)
        sums[i * sums_stride + first + j] += double(out[i * kTileHeads + j]);
  }
}

template <typename T>
int flaws(const T* x, int64_t count) {
  int not_finite = 0, negative = 0;
  for (int64_t k = 0; k < count; k++) {
    not_finite |= !(x[k] - x[k] == 0);
    negative |= x[k] < 0;
  }
  return not_finite * kNotFinite | negative * kNegative;
}

template <typename T>
int64_t place_of_largest(const T* x, int64_t count) {
  using vec = typename Simd<T>::vec;
  constexpr int w = kWidth<T>;
  T largest = -T(__builtin_inf());
  vec part[kSums];
  for (int i = 0; i < kSums; i++) part[i] = vec{} + largest;
  int64_t k = 0;
  for (; k + kSums * w <= count; k += kSums * w)
#pragma GCC unroll 16
    for (int i = 0; i < kSums; i++) {
      const vec entries = read(x + k + i * w);
      part[i] = entries > part[i] ? entries : part[i];
    }
  for (int i = 0; i < kSums; i++)
    for (int j = 0; j < w; j++) largest = part[i][j] > largest ? part[i][j] : largest;
  for (; k < count; k++) largest = x[k] > largest ? x[k] : largest;
  for (int64_t begin = 0; begin < count; begin += kLoadBlock) {
    const int64_t end = begin + kLoadBlock < count ? begin + kLoadBlock : count;
    int found = 0;
    for (k = begin; k < end; k++) found |= x[k] == largest;
    if (!found) continue;
    for (k = begin; x[k] != largest;) k++;
    return k;
  }
  return 0;
}

inline float square_root(float x) { return __builtin_sqrtf(x); }
inline double square_root(double x) { return __builtin_sqrt(x); }

// out[i] = sum_k f(rows[i][k] - rows[i][0] - shift[i]) with f the square, or the number itself.
template <typename T, bool squared>
inline void sum_rows(const T* const (&rows)[kWidth<T>], const T* shift, int64_t length, T* out) {
  constexpr int w = kWidth<T>;
  typename Simd<T>::vec part[w] = {};
  const int64_t whole = length / w * w;
#pragma GCC unroll 16
  for (int i = 0; i < w; i++)
    for (int64_t k = 0; k < whole; k += w) {
      const auto d = (read(rows[i] + k) - rows[i][0]) - shift[i];
      part[i] += squared ? d * d : d;
    }
  *reinterpret_cast<typename Simd<T>::loose*>(out) = totals<T>(part);
  for (int i = 0; i < w; i++)
    for (int64_t k = whole; k < length; k++) {
      const T d = (rows[i][k] - rows[i][0]) - shift[i];
      out[i] += squared ? d * d : d;
    }
}

// Centres and scales a register of rows at a time. The first entry is subtracted before the mean,
// which leaves differences between weights: their rounding is small beside the centred row however
// small the row is, and a row of one value gives exactly 0.
template <typename T>
void unit_rows(T* rows, int64_t count, int64_t length) {
  constexpr int w = kWidth<T>;
  const int64_t whole = length / w * w;
  for (int64_t begin = 0; begin < count; begin += w) {
    const int64_t last = count - begin < w ? count - begin - 1 : w - 1;
    const T* source[w];
    for (int64_t i = 0; i < w; i++) source[i] = rows + (begin + (i < last ? i : last)) * length;
    T shift[w] = {}, scale[w];
    sum_rows<T, false>(source, shift, length, scale);
    for (int i = 0; i < w; i++) shift[i] = scale[i] / T(length);
    sum_rows<T, true>(source, shift, length, scale);
    for (int i = 0; i < w; i++) {
      const T unit = 1 / square_root(scale[i]);
      scale[i] = scale[i] > T(kConstantRow * kConstantRow) ? unit : T(0);
    }
    for (int64_t i = 0; i <= last; i++) {
      T* const row = rows + (begin + i) * length;
      const T first = row[0];
      for (int64_t k = 0; k < whole; k += w)
        *reinterpret_cast<typename Simd<T>::loose*>(row + k) =
            ((read(row + k) - first) - shift[i]) * scale[i];
      for (int64_t k = whole; k < length; k++) row[k] = ((row[k] - first) - shift[i]) * scale[i];
    }
  }
}

// A function of its own, because the target pragma does not reach the lambda in `load`.
template <typename T, typename Source>
void load_strided(const Source* x, int64_t stride, int64_t count, T* out) {
  if (stride == 1)
    for (int64_t k = 0; k < count; k++) out[k] = T(widen(x[k]));
  else
    for (int64_t k = 0; k < count; k++) out[k] = T(widen(x[k * stride]));
}

template <typename T>
void load(const void* source, DType dtype, int64_t stride, int64_t count, T* out) {
  with_source(LayerView{source, dtype, count, 0, stride},
              [&](const auto* x) { load_strided(x, stride, count, out); });
}
