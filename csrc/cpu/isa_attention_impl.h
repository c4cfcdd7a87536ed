// Inner loops of the attention measures, part of isa_impl.h (which see).
//
// Cost      per pair of heads and weight: js 17 operations of a register, of which 10 are
//           multiply-adds; pearson and frobenius are bound by their two loads.
// Numerics  the logarithm is good to 1.4e-7 relative in float32 and 4e-16 in float64, for normal
//           numbers; a subnormal one gets a finite value near log of the smallest normal, and 0
//           times that is 0. A sum runs over at most one block of columns in T, in
//           kSums * width parts, and goes to float64. The same column takes the same
//           instructions whatever the pair: F(p) and F((p + p) / 2) are bit-equal.

constexpr int kSums = 4;  // independent sums of a row, to hide the latency of an addition

// The logarithm comes in units in which the exponent of a number needs no conversion: its bits.
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

// The same range; with s = r / (2 + r), |s| <= 1/5, log(1 + r) = 2 (s + s^3 / 3 + s^5 / 5 + ...).
// Few instruction sets convert 64-bit integers or shift them arithmetically: the biased exponent is
// shifted as an unsigned number and joins the mantissa of 2^52.
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

// What a pair of weights adds. js gets halves of the weights: their sum is the mixture, exactly as
// rounded as (p + q) / 2.
struct MixtureTerm {
  template <typename T>
  static constexpr double unit = kLogUnit<T>;
  template <typename vec>
  static vec add(vec sum, vec p, vec q) {
    const vec m = p + q;
    return sum + m * scaled_log(m);
  }
};
struct ProductTerm {
  template <typename T>
  static constexpr double unit = 1;
  template <typename vec>
  static vec add(vec sum, vec p, vec q) {
    return sum + p * q;
  }
};
struct SquaredDifferenceTerm {
  template <typename T>
  static constexpr double unit = 1;
  template <typename vec>
  static vec add(vec sum, vec p, vec q) {
    const vec d = p - q;
    return sum + d * d;
  }
};

template <typename T>
inline typename Simd<T>::vec read(const T* row) {
  return *reinterpret_cast<const typename Simd<T>::loose*>(row);
}

template <typename T, typename Term>
void pair_sums(const T* p, const T* q, int64_t q_stride, int64_t rows, int64_t length,
               double* sums) {
  using vec = typename Simd<T>::vec;
  constexpr int w = kWidth<T>;
  for (int64_t r = 0; r < rows; r++, q += q_stride) {
    vec sum[kSums] = {};
    int64_t k = 0;
    for (; k + kSums * w <= length; k += kSums * w)
#pragma GCC unroll 16
      for (int i = 0; i < kSums; i++)
        sum[i] = Term::add(sum[i], read(p + k + i * w), read(q + k + i * w));
    for (; k < length; k += w) sum[0] = Term::add(sum[0], read(p + k), read(q + k));
    const vec parts = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    double total = 0;
    for (int i = 0; i < w; i++) total += double(parts[i]);
    sums[r] += total * Term::template unit<T>;
  }
}

// Not inside the lambda below, which the target pragma does not reach.
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
