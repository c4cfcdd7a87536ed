// The bodies behind NeighboursTable, included once per instruction set after isa_impl.h, whose
// register types they use.
//
// Cost      flag: per entry of a product 2 subtractions, 2 comparisons, and 1 byte written for 12
//           read, all of which are in the nearest cache. kth: count^2 comparisons without a branch
//           on what they find. half_softmax: four passes, one with an exponential. The others: one
//           pass over rows.
// Numerics  sums in float64, in kParts * width parts (half_softmax: width) whose order is fixed: a
//           row takes the same instructions whatever the other row, so that equal rows are at
//           bit-equal distances, and both directions of a pair agree in every bit.
// No include guard and no includes, as in isa_impl.h.

constexpr int kParts = 4;  // independent sums, to hide the latency of an addition

inline void flag_near(const float* g, int64_t count, float own, float limit, const float* bias,
                      const float* limits, uint8_t* flags) {
  constexpr int w = kWidth<float>;
  typedef uint8_t bytes __attribute__((vector_size(w)));
  typedef uint8_t loose_bytes __attribute__((vector_size(w), aligned(1), may_alias));
  for (int64_t j = 0; j < count; j += w) {
    const auto product = read(g + j);
    const auto row = (read(bias + j) - product) <= limit;
    const auto column = (own - product) <= read(limits + j);
    const auto both = (row & kNearRow) | (column & kNearColumn);
    *reinterpret_cast<loose_bytes*>(flags + j) = __builtin_convertvector(both, bytes);
  }
}

inline float kth_smallest(const float* keys, int64_t count, int64_t k) {
  constexpr int w = kWidth<float>;
  typedef int32_t counts __attribute__((vector_size(w * 4)));
  auto found = typename Simd<float>::vec{} + __builtin_inff();
  for (int64_t c = 0; c < count; c += w) {
    const auto own = read(keys + c);
    counts at_most{};
    for (int64_t b = 0; b < count; b++) at_most -= keys[b] <= own;
    found = ((at_most >= int32_t(k)) & (own < found)) ? own : found;
  }
  float result = found[0];
  for (int i = 1; i < w; i++) result = found[i] < result ? found[i] : result;
  return result;
}

inline void load_scaled(const void* source, DType dtype, int64_t stride, int64_t count,
                        double scale, double factor, double* out) {
  with_source(LayerView{source, dtype, count, 0, stride}, [&](const auto* x) {
    if (stride == 1)
      for (int64_t k = 0; k < count; k++) out[k] = (double(widen(x[k])) * scale) * factor;
    else
      for (int64_t k = 0; k < count; k++) out[k] = (double(widen(x[k * stride])) * scale) * factor;
  });
}

inline void add_scaled(const void* source, DType dtype, int64_t stride, int64_t count,
                       double factor, double* sums) {
  with_source(LayerView{source, dtype, count, 0, stride}, [&](const auto* x) {
    if (stride == 1)
      for (int64_t k = 0; k < count; k++) sums[k] += double(widen(x[k])) * factor;
    else
      for (int64_t k = 0; k < count; k++) sums[k] += double(widen(x[k * stride])) * factor;
  });
}

inline Simd<double>::vec larger(Simd<double>::vec a, Simd<double>::vec b) { return a > b ? a : b; }
inline Simd<double>::vec magnitude(Simd<double>::vec x) { return x > 0.0 ? x : -x; }
inline double magnitude(double x) { return x > 0 ? x : -x; }

inline double largest_lane(Simd<double>::vec x) {
  double result = 0;
  for (int i = 0; i < kWidth<double>; i++) result = x[i] > result ? x[i] : result;
  return result;
}

inline double largest_entry(const double* x, int64_t count) {
  constexpr int w = kWidth<double>;
  typename Simd<double>::vec found{};
  int64_t k = 0;
  for (; k + w <= count; k += w) found = larger(magnitude(read(x + k)), found);
  double result = largest_lane(found);
  for (; k < count; k++) result = magnitude(x[k]) > result ? magnitude(x[k]) : result;
  return result;
}

// sum_k term(a[k], b[k])
template <typename Term>
inline double sum_pairs(const double* a, const double* b, int64_t count, const Term& term) {
  constexpr int w = kWidth<double>;
  typename Simd<double>::vec part[kParts] = {};
  int64_t k = 0;
  for (; k + kParts * w <= count; k += kParts * w)
#pragma GCC unroll 16
    for (int i = 0; i < kParts; i++) part[i] += term(read(a + k + i * w), read(b + k + i * w));
  for (; k + w <= count; k += w) part[0] += term(read(a + k), read(b + k));
  const auto parts = (part[0] + part[1]) + (part[2] + part[3]);
  double total = 0;
  for (int i = 0; i < w; i++) total += parts[i];
  for (; k < count; k++) total += term(a[k], b[k]);
  return total;
}

inline double dot_rows(const double* a, const double* b, int64_t count) {
  return sum_pairs(a, b, count, [](auto x, auto y) { return x * y; });
}

inline double squared_distance_rows(const double* a, const double* b, int64_t count) {
  return sum_pairs(a, b, count, [](auto x, auto y) {
    const auto d = x - y;
    return d * d;
  });
}

// Weights below e^-700 are computed as e^-700: the largest weight is 1, so that no digit of their
// sum changes.
inline Simd<double>::vec exp_of_difference(Simd<double>::vec x) {
  const auto lowest = Simd<double>::vec{} - 700.0;
  const auto e = exponential(x < lowest ? lowest : x);
  return e.power + e.power * e.p;
}

inline void half_softmax(double* x, int64_t count) {
  using loose = typename Simd<double>::loose;
  constexpr int w = kWidth<double>;
  const double top = x[place_of_largest(x, count)];
  typename Simd<double>::vec total{};
  int64_t k = 0;
  for (; k + w <= count; k += w) {
    const auto weights = exp_of_difference(read(x + k) - top);
    *reinterpret_cast<loose*>(x + k) = weights;
    total += weights;
  }
  double sum = 0;
  for (int i = 0; i < w; i++) sum += total[i];
  typename Simd<double>::vec rest{};
  for (int i = 0; k + i < count; i++) rest[i] = x[k + i] - top;
  rest = exp_of_difference(rest);
  for (int i = 0; k + i < count; i++) sum += x[k + i] = rest[i];
  const double half = 0.5 / sum;
  for (k = 0; k < count; k++) x[k] *= half;
}

inline double add_difference(const double* x, const double* first, int64_t count, double* sums) {
  using loose = typename Simd<double>::loose;
  constexpr int w = kWidth<double>;
  typename Simd<double>::vec found{};
  int64_t k = 0;
  for (; k + w <= count; k += w) {
    const auto d = read(x + k) - read(first + k);
    *reinterpret_cast<loose*>(sums + k) = read(sums + k) + d;
    found = larger(magnitude(d), found);
  }
  double result = largest_lane(found);
  for (; k < count; k++) {
    const double d = x[k] - first[k];
    sums[k] += d;
    result = magnitude(d) > result ? magnitude(d) : result;
  }
  return result;
}

inline CentredSums centre_row(const double* x, const double* mean, int64_t count, double scale,
                              float* out) {
  for (int64_t k = 0; k < count; k++) out[k] = float((x[k] - mean[k]) * scale);
  double square[kParts] = {}, with_mean[kParts] = {};
  int64_t k = 0;
  for (; k + kParts <= count; k += kParts)
    for (int i = 0; i < kParts; i++) {
      square[i] += double(out[k + i]) * double(out[k + i]);
      with_mean[i] += double(out[k + i]) * (mean[k + i] * scale);
    }
  for (; k < count; k++) {
    square[0] += double(out[k]) * double(out[k]);
    with_mean[0] += double(out[k]) * (mean[k] * scale);
  }
  return {(square[0] + square[1]) + (square[2] + square[3]),
          (with_mean[0] + with_mean[1]) + (with_mean[2] + with_mean[3])};
}

inline NeighboursTable make_neighbours_table() {
  return {flag_near, kth_smallest,          load_scaled,  add_scaled,     largest_entry,
          dot_rows,  squared_distance_rows, half_softmax, add_difference, centre_row};
}
