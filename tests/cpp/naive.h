// Test data and the plain double loops that the kernels are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "core/math/hsic_math.h"
#include "cpu/base/half.h"
#include "cpu/base/layer.h"
#include "cpu/base/runtime.h"

namespace naive {

using simcore::bytes_of;
using simcore::cpu::DType;
using simcore::cpu::LayerView;

// A layer that owns its numbers, and the view that the kernels get.
struct Layer {
  int64_t n = 0;
  DType dtype = DType::f64;
  std::vector<double> values;  // [n, width], the exact values of the stored numbers
  std::vector<unsigned char> storage;
  LayerView view{};

  double at(int64_t i, int64_t k) const { return values[i * view.width + k]; }
};

inline uint16_t bfloat16_bits(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return uint16_t(bits >> 16);  // towards zero: any rounding serves a test
}

// Writes `value` as `dtype` at element `index` of `storage` and returns what arrived.
inline double store(std::vector<unsigned char>& storage, DType dtype, int64_t index, double value) {
  const auto put = [&](auto x) {
    std::memcpy(&storage[index * int64_t(sizeof x)], &x, sizeof x);
    return x;
  };
  switch (dtype) {
    case DType::f16: return static_cast<float>(put(static_cast<simcore::cpu::Float16>(value)));
    case DType::bf16: return put(simcore::cpu::BFloat16{bfloat16_bits(float(value))}).to_float();
    case DType::f32: return put(float(value));
    default: return put(value);
  }
}

enum class Order { rows, columns, reversed };  // row-major, column-major, rows last to first

// Fills storage and view from `values`.
inline void lay_out(Layer& layer, Order order) {
  const int64_t n = layer.n, p = layer.view.width;
  layer.storage.resize(n * p * bytes_of(layer.dtype));
  const int64_t row_stride = order == Order::columns ? 1 : order == Order::rows ? p : -p;
  const int64_t col_stride = order == Order::columns ? n : 1;
  const int64_t first = order == Order::reversed ? (n - 1) * p : 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < p; k++) {
      double& value = layer.values[i * p + k];
      value = store(layer.storage, layer.dtype, first + i * row_stride + k * col_stride, value);
    }
  layer.view.data = layer.storage.data() + first * bytes_of(layer.dtype);
  layer.view.dtype = layer.dtype;
  layer.view.row_stride = row_stride;
  layer.view.col_stride = col_stride;
}

// Returns a layer with other values, which `change` writes.
template <typename Change>
Layer changed(Layer layer, Order order, const Change& change) {
  change(layer.values);
  lay_out(layer, order);
  return layer;
}

template <typename Change>
Layer changed(Layer layer, const Change& change) {
  return changed(std::move(layer), Order::rows, change);
}

struct Shape {
  DType dtype = DType::f64;
  double offset = 0;   // common offset of all columns, in standard deviations
  double outlier = 1;  // factor on column 0, as real encoders have
  Order order = Order::rows;
};

// Layers that share a signal, so that their HSIC is far from zero.
inline Layer make_layer(int64_t n, int64_t width, unsigned seed, Shape shape = {}) {
  Layer layer;
  layer.n = n;
  layer.dtype = shape.dtype;
  layer.view.width = width;
  layer.values.resize(n * width);
  std::mt19937 shared(7), own(seed);
  std::normal_distribution<double> normal;
  std::vector<double> weights(width);
  for (double& w : weights) w = normal(own);
  for (int64_t i = 0; i < n; i++) {
    const double signal = normal(shared);
    for (int64_t k = 0; k < width; k++) {
      const double value = normal(own) + 0.5 * signal * weights[k];
      layer.values[i * width + k] = (value + shape.offset) * (k == 0 ? shape.outlier : 1);
    }
  }
  lay_out(layer, shape.order);
  return layer;
}

inline std::vector<Layer> make_layers(int64_t n, const std::vector<int64_t>& widths, unsigned seed,
                                      Shape shape = {}) {
  std::vector<Layer> layers;
  for (const int64_t width : widths) layers.push_back(make_layer(n, width, seed++, shape));
  return layers;
}

inline std::vector<LayerView> views(const std::vector<Layer>& layers) {
  std::vector<LayerView> all;
  for (const Layer& layer : layers) all.push_back(layer.view);
  return all;
}

// These compute in T: double for the values wanted, float for what a plain float32 run would give.
template <typename T = double>
std::vector<T> squared_distances(const Layer& x) {
  std::vector<T> d(x.n * x.n);
  for (int64_t i = 0; i < x.n; i++)
    for (int64_t j = 0; j < x.n; j++)
      for (int64_t k = 0; k < x.view.width; k++)
        d[i * x.n + j] += T(x.at(i, k) - x.at(j, k)) * T(x.at(i, k) - x.at(j, k));
  return d;
}

// Returns the middle value, or the mean of the two middle ones.
template <typename T>
T median(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Returns the Gram matrix [n, n]: exp(-d^2 / (2 s^2)), or distances d, or inner products of columns
// centred first.
template <typename T = double>
std::vector<T> gram(const Layer& x, simcore::KernelKind kernel, double bandwidth) {
  const int64_t n = x.n;
  if (kernel == simcore::KernelKind::rbf) {
    std::vector<T> g = squared_distances<T>(x);
    const T width = T(bandwidth * bandwidth) * median(g);
    for (T& d : g) d = std::exp(-d / (2 * width));
    return g;
  }
  if (kernel == simcore::KernelKind::distance) {
    std::vector<T> g = squared_distances<T>(x);
    for (T& d : g) d = std::sqrt(d);
    return g;
  }
  std::vector<T> centred(x.values.begin(), x.values.end()), g(n * n);
  for (int64_t k = 0; k < x.view.width; k++) {
    double mean = 0;
    for (int64_t i = 0; i < n; i++) mean += (x.at(i, k) - x.at(0, k)) / double(n);
    for (int64_t i = 0; i < n; i++)
      centred[i * x.view.width + k] = T((x.at(i, k) - x.at(0, k)) - mean);
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t k = 0; k < x.view.width; k++)
        g[i * n + j] += centred[i * x.view.width + k] * centred[j * x.view.width + k];
  return g;
}

// tr(K H L H) / (n-1)^2, K and L [n, n]: both are centred, then multiplied entry by entry.
template <typename T>
double hsic_biased(std::vector<T> k, std::vector<T> l, int64_t n) {
  for (std::vector<T>* g : {&k, &l}) {
    std::vector<T> row(n);
    T all = 0;
    for (int64_t i = 0; i < n * n; i++) row[i / n] += (*g)[i] / T(n);
    for (const T r : row) all += r / T(n);
    for (int64_t i = 0; i < n * n; i++) (*g)[i] += all - row[i / n] - row[i % n];
  }
  T sum = 0;
  for (int64_t i = 0; i < n * n; i++) sum += k[i] * l[i];
  return double(sum) / double((n - 1) * (n - 1));
}

// Song et al. 2012, equation 5.
template <typename T>
double hsic_unbiased(std::vector<T> k, std::vector<T> l, int64_t n) {
  for (int64_t i = 0; i < n; i++) k[i * n + i] = l[i * n + i] = 0;
  T trace = 0, sum_k = 0, sum_l = 0, rows = 0;
  for (int64_t i = 0; i < n; i++) {
    T row_k = 0, row_l = 0;
    for (int64_t j = 0; j < n; j++) {
      trace += k[i * n + j] * l[i * n + j];
      row_k += k[i * n + j];
      row_l += l[i * n + j];
    }
    rows += row_k * row_l;
    sum_k += row_k;
    sum_l += row_l;
  }
  const T m = T(n);
  return double((trace + sum_k * sum_l / ((m - 1) * (m - 2)) - 2 / (m - 2) * rows) / (m * (m - 3)));
}

// tr(K L)
template <typename T>
double gram_product(std::vector<T> k, std::vector<T> l, int64_t n) {
  T sum = 0;
  for (int64_t i = 0; i < n * n; i++) sum += k[i] * l[i];
  return double(sum);
}

template <typename T>
auto estimator(simcore::Estimator which) {
  return which == simcore::Estimator::biased     ? hsic_biased<T>
         : which == simcore::Estimator::unbiased ? hsic_unbiased<T>
                                                 : gram_product<T>;
}

// The error allowed in an HSIC value: relative to the biased self-HSICs, so an absolute error of
// CKA. float32 promises 1e-5 at any offset; half precisions compute in float32.
inline double tolerance(DType dtype, double self_x, double self_y) {
  return (dtype == DType::f64 ? 1e-10 : 1e-5) * std::sqrt(self_x * self_y);
}

// The parallel runtime of these tests: real threads, which ThreadSanitizer understands (it would
// report false races in an OpenMP runtime that was not built with it).
inline simcore::cpu::Runtime threads(int count) {
  simcore::cpu::Runtime rt;
  rt.threads = count;
  rt.on_threads = [count](const std::function<void(int)>& body) {
    std::vector<std::thread> pool;
    for (int t = 1; t < count; t++) pool.emplace_back([&body, t] { body(t); });
    body(0);
    for (std::thread& thread : pool) thread.join();
  };
  return rt;
}

}  // namespace naive
