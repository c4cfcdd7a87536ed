// Inner loops of assignments, included by isa_impl.h. They go along a row of costs.
//
// Cost      least_two: per column 3 loads and compares for the two least; relax: 3 loads, 2 stores
//           where a path becomes shorter. A row of costs is read in order.
// Numerics  prices and lengths in float64 whatever T: a sum of costs keeps the digits of each.

typedef int64_t Places __attribute__((vector_size(SIMCORE_VECTOR_BYTES)));

inline Places first_places() {
  Places places{};
  for (int i = 0; i < kWidth<double>; i++) places[i] = i;
  return places;
}

// `width of float64` costs, in float64.
template <typename T>
inline Simd<double>::vec read_costs(const T* cost) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return read(cost);
  } else {
    typedef T half
        __attribute__((vector_size(SIMCORE_VECTOR_BYTES / 2), aligned(sizeof(T)), may_alias));
    return __builtin_convertvector(*reinterpret_cast<const half*>(cost), Simd<double>::vec);
  }
}

template <typename T>
LeastTwo least_two(const T* cost, const double* prices, int64_t count) {
  constexpr int w = kWidth<double>;
  using vec = Simd<double>::vec;
  vec least = vec{} + __builtin_inf(), second = least;
  Places place = first_places(), at = place, second_at = place;
  for (int64_t j = 0; j < count; j += w, place += w) {
    const vec value = read_costs(cost + j) - read(prices + j);
    const auto first = value < least, next = value < second;
    second_at = first ? at : (next ? place : second_at);
    second = first ? least : (next ? value : second);
    at = first ? place : at;
    least = first ? value : least;
  }
  LeastTwo found{__builtin_inf(), __builtin_inf(), -1, -1};
  const auto insert = [&](double value, int64_t index) {
    if (value < found.least || (value == found.least && index < found.at)) {
      found = {value, found.least, index, found.at};
    } else if (value < found.second) {
      found.second = value;
      found.second_at = index;
    }
  };
  for (int i = 0; i < w; i++) insert(least[i], at[i]);
  for (int i = 0; i < w; i++) insert(second[i], second_at[i]);
  return found;
}

template <typename T>
Nearest relax(const T* cost, const double* prices, int64_t count, double length, int64_t from,
              double* lengths, int64_t* previous) {
  constexpr int w = kWidth<double>;
  using vec = Simd<double>::vec;
  typedef int64_t loose_places
      __attribute__((vector_size(SIMCORE_VECTOR_BYTES), aligned(8), may_alias));
  vec least = vec{} + __builtin_inf();
  Places place = first_places(), at = place - w;
  for (int64_t j = 0; j < count; j += w, place += w) {
    const vec value = (read_costs(cost + j) - read(prices + j)) + length, old = read(lengths + j);
    const auto shorter = value < old;
    const vec now = shorter ? value : old;
    *reinterpret_cast<typename Simd<double>::loose*>(lengths + j) = now;
    const Places before = *reinterpret_cast<const loose_places*>(previous + j);
    const Places came = shorter ? Places{} + from : before;
    *reinterpret_cast<loose_places*>(previous + j) = came;
    const auto nearer = now < least;
    at = nearer ? place : at;
    least = nearer ? now : least;
  }
  Nearest found{__builtin_inf(), -1};
  for (int i = 0; i < w; i++)
    if (least[i] < found.length || (least[i] == found.length && at[i] < found.at))
      found = {least[i], at[i]};
  return found;
}
