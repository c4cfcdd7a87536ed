// Inner loops of affine couplings, included by isa_impl.h.
//
// Cost      about 45 operations and one division a register, forward; backward 10 more. So much
//           arithmetic leaves too few loads in flight to hide the latency of memory, and the
//           hardware does not predict the addresses of params: the loops prefetch the next row.
// Numerics  relative errors: exponentials 2e-7 in float32 and 4e-16 in float64 for arguments up to
//           about 1, and the error of rounding the argument beyond; s 4e-7 and 1e-15, near 0 too
//           (at 0 it is exactly 0); ds / ds_raw twice the error of s, times |s_raw| / c where that
//           ratio is above 1. Beyond |s_raw| = 40 c, ds / ds_raw keeps its value at 40 c, below
//           1e-34. NaN stays NaN. Registers that a row does not fill are computed by the same
//           instructions: an entry's result does not depend on its column.

// exp(x) = power * (1 + p).
template <typename V>
struct Exponential {
  V power, p;
};

// x = m ln2 + r, |r| <= ln2 / 2; p = r Q(r), Q the relative minimax approximation of (e^r - 1) / r
// of degree 5 (Remez; 1.1e-8). |x| <= 87.
inline Exponential<Simd<float>::vec> exponential(Simd<float>::vec x) {
  using vec = Simd<float>::vec;
  typedef int32_t bits __attribute__((vector_size(SIMCORE_VECTOR_BYTES)));
  const vec shifted = x * 1.44269504f + 12582912.0f;  // the integer m stands in the low bits
  const vec m = shifted - 12582912.0f;
  const vec r = x - m * 0.693147181f;  // the error of r, m 1e-8, is below that of x itself
  vec q = vec{} + 0.0013888872857f;
  q = q * r + 0.0083690757062f;
  q = q * r + 0.041667136396f;
  q = q * r + 0.16666506156f;
  q = q * r + 0.49999998124f;
  q = q * r + 1.0f;
  const bits power = (__builtin_bit_cast(bits, shifted) + 127) << 23;
  return {__builtin_bit_cast(vec, power), q * r};
}

// The exponential in float64, with Q of degree 10 (1.8e-17). |x| <= 700.
inline Exponential<Simd<double>::vec> exponential(Simd<double>::vec x) {
  using vec = Simd<double>::vec;
  typedef int64_t bits __attribute__((vector_size(SIMCORE_VECTOR_BYTES)));
  const vec shifted = x * 1.4426950408889634 + 6755399441055744.0;
  const vec m = shifted - 6755399441055744.0;
  const vec r = x - m * 0.6931471805599453094;
  vec q = vec{} + 2.505209632408296842e-8;
  q = q * r + 2.76262765744974904e-7;
  q = q * r + 2.755741482818557587e-6;
  q = q * r + 2.480150456908964323e-5;
  q = q * r + 1.984126970738696194e-4;
  q = q * r + 1.388888893228488033e-3;
  q = q * r + 8.333333333397884632e-3;
  q = q * r + 4.166666666657383429e-2;
  q = q * r + 1.666666666666656343e-1;
  q = q * r + 0.5000000000000005554;
  q = q * r + 1.0;
  const bits power = (__builtin_bit_cast(bits, shifted) + 1023) << 52;
  return {__builtin_bit_cast(vec, power), q * r};
}

template <typename T>
inline SoftClamp<typename Simd<T>::vec> clamp_register(typename Simd<T>::vec s_raw, T clamp) {
  using vec = typename Simd<T>::vec;
  const vec largest = vec{} + T(kMaxTanhArgument);
  vec z = s_raw * (2 / clamp);
  z = z > largest ? largest : z;
  z = z < -largest ? -largest : z;
  const Exponential<vec> e = exponential(z);
  const vec scaled = e.power * e.p;
  return soft_clamp(scaled + e.power, scaled + (e.power - T(1)), clamp);
}

template <typename T, bool inverse>
inline typename Simd<T>::vec scale_of(typename Simd<T>::vec s) {
  const Exponential<typename Simd<T>::vec> e = exponential(inverse ? -s : s);
  return e.power * e.p + e.power;
}

// Returns a register with its first `count` entries read and the others zero.
template <typename T>
inline typename Simd<T>::vec read_part(const T* row, int64_t count) {
  typename Simd<T>::vec value{};
  for (int64_t i = 0; i < count; i++) value[i] = row[i];
  return value;
}

template <typename T>
inline void write(T* row, typename Simd<T>::vec value) {
  *reinterpret_cast<typename Simd<T>::loose*>(row) = value;
}

template <typename T>
inline void write_part(T* row, int64_t count, typename Simd<T>::vec value) {
  for (int64_t i = 0; i < count; i++) row[i] = value[i];
}

template <typename T, bool inverse>
void couple(const T* x, const T* s_raw, const T* t, int64_t count, T clamp, CouplingAhead ahead,
            T* out, double* log_det) {
  using vec = typename Simd<T>::vec;
  constexpr int w = kWidth<T>;
  vec sum{};
  int64_t k = 0;
  for (; k + w <= count; k += w) {
    __builtin_prefetch(x + k + ahead.row);
    __builtin_prefetch(s_raw + k + ahead.params);
    __builtin_prefetch(t + k + ahead.params);
    __builtin_prefetch(out + k + ahead.row, 1);
    const vec s = clamp_register(read(s_raw + k), clamp).s;
    sum += s;
    write(out + k, couple_entry<inverse>(read(x + k), scale_of<T, inverse>(s), read(t + k)));
  }
  if (k < count) {
    const int64_t rest = count - k;
    const vec s = clamp_register(read_part(s_raw + k, rest), clamp).s;
    sum += s;
    write_part(out + k, rest,
               couple_entry<inverse>(read_part(x + k, rest), scale_of<T, inverse>(s),
                                     read_part(t + k, rest)));
  }
  double total = 0;
  for (int i = 0; i < w; i++) total += double(sum[i]);
  *log_det += inverse ? -total : total;
}

template <typename T, bool inverse>
inline CouplingGradients<typename Simd<T>::vec> gradients_register(typename Simd<T>::vec grad,
                                                                   T grad_log_det,
                                                                   typename Simd<T>::vec kept,
                                                                   typename Simd<T>::vec s_raw,
                                                                   T clamp) {
  const SoftClamp<typename Simd<T>::vec> c = clamp_register(s_raw, clamp);
  return coupling_gradients<inverse>(grad, grad_log_det, kept, scale_of<T, inverse>(c.s), c.slope);
}

template <typename T, bool inverse>
void couple_gradients(const T* grad, T grad_log_det, const T* kept, const T* s_raw, int64_t count,
                      T clamp, CouplingAhead ahead, T* grad_x, T* grad_s_raw, T* grad_t) {
  constexpr int w = kWidth<T>;
  int64_t k = 0;
  for (; k + w <= count; k += w) {
    __builtin_prefetch(grad + k + ahead.row);
    __builtin_prefetch(kept + k + ahead.row);
    __builtin_prefetch(s_raw + k + ahead.params);
    __builtin_prefetch(grad_x + k + ahead.row, 1);
    __builtin_prefetch(grad_s_raw + k + ahead.params, 1);
    __builtin_prefetch(grad_t + k + ahead.params, 1);
    const auto g = gradients_register<T, inverse>(read(grad + k), grad_log_det, read(kept + k),
                                                  read(s_raw + k), clamp);
    write(grad_x + k, g.x);
    write(grad_s_raw + k, g.s_raw);
    write(grad_t + k, g.t);
  }
  if (k == count) return;
  const int64_t rest = count - k;
  const auto g =
      gradients_register<T, inverse>(read_part(grad + k, rest), grad_log_det,
                                     read_part(kept + k, rest), read_part(s_raw + k, rest), clamp);
  write_part(grad_x + k, rest, g.x);
  write_part(grad_s_raw + k, rest, g.s_raw);
  write_part(grad_t + k, rest, g.t);
}
