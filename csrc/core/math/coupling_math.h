// One entry of an affine coupling layer: the soft clamp, both directions and their gradients.
//
// Math    s = c tanh(s_raw / c)                    |s| < c, ds / ds_raw = 1 - tanh^2
//         forward   y = x exp(s) + t               log-determinant of a row: sum s
//         inverse   x = (y - t) exp(-s)            and its own log-determinant: -sum s
// Source  Dinh et al. 2017 (RealNVP), section 3.4; Ren et al. 2023, section 3.4
// Twin    simcore/reference/coupling.py
//
// V is a number or a register of numbers T. No include guard and no includes: isa_impl.h includes
// this once per instruction set, inside its namespace, so that its target pragma reaches the
// templates; other users include it once in a namespace of their own, after core/math/hsic_math.h,
// which has SIMCORE_HD.

constexpr double kMaxTanhArgument = 80;  // largest 2 z in exp(2 z): its square still fits float32

template <typename V>
struct SoftClamp {
  V s;
  V slope;  // ds / ds_raw
};

// Takes e = exp(2 s_raw / c) and e_minus_1 = e - 1 computed without cancellation: tanh is then
// accurate near 0, and 1 - tanh^2 where tanh is near 1.
template <typename T, typename V>
SIMCORE_HD inline SoftClamp<V> soft_clamp(V e, V e_minus_1, T c) {
  const V q = T(1) / (e_minus_1 + T(2));
  return {c * (e_minus_1 * q), T(4) * (e * q) * q};
}

// scale = exp(s) forward, exp(-s) inverse.
template <bool inverse, typename V>
SIMCORE_HD inline V couple_entry(V x, V scale, V t) {
  if constexpr (inverse) return (x - t) * scale;
  return x * scale + t;
}

template <typename V>
struct CouplingGradients {
  V x, s_raw, t;
};

// grad is the gradient of the entry, grad_log_det the gradient of its row's log-determinant. `kept`
// is x (forward) or the result (inverse), so that t is not needed again.
template <bool inverse, typename T, typename V>
SIMCORE_HD inline CouplingGradients<V> coupling_gradients(V grad, T grad_log_det, V kept, V scale,
                                                          V slope) {
  const V grad_x = grad * scale;
  if constexpr (inverse) return {grad_x, -(grad * kept + grad_log_det) * slope, -grad_x};
  return {grad_x, (grad_x * kept + grad_log_det) * slope, grad};
}
