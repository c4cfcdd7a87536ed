// The tile products of csrc/cuda, tensor-core variants included: the instructions of tensor cores
// are emulated (cuda_host/mma_host.h); all other code is the code that a device runs.
#include "cuda/products/product_tensor.cuh"  // and product_narrow.cuh

#include <algorithm>
#include <random>

#include "../check.h"

using simcore::cuda::launch;
using simcore::cuda::NarrowProduct;
using simcore::cuda::Panel;
using simcore::cuda::PlainProduct;
using simcore::cuda::PlainRows;
using simcore::cuda::SplitRows;
using simcore::cuda::TensorProduct;

namespace {

template <typename Product, typename P, typename T = typename Product::Value>
void multiply_tile(P a, P b, int64_t begin, int64_t end, T* c) {
  Product product;
  const int64_t middle = begin + (end - begin) / 2 / Product::kDepth * Product::kDepth;
  product.add(a, b, begin, middle);
  product.add(a, b, middle, end);
  product.visit([&](int row, int column, const T(&values)[Product::kRun]) {
    for (int e = 0; e < Product::kRun; e++) c[row * Product::kTile + column + e] = values[e];
  });
}

// Stores rows in the product's format, exactly as many as there are, so that AddressSanitizer sees
// a read of one row too many.
template <typename Rows, bool units = false>
std::vector<typename Rows::Stored> store(const std::vector<typename Rows::Value>& values,
                                         int64_t width) {
  const int64_t rows = int64_t(values.size()) / width;
  const Panel<Rows, units> panel{nullptr, units ? rows : width, rows};
  std::vector<typename Rows::Stored> stored(values.size() * Rows::kPlanes);
  for (int64_t i = 0; i < int64_t(values.size()); i += 2) {
    const typename Rows::Value pair[2] = {values[size_t(i)], values[size_t(i + 1)]};
    const int64_t at = panel.offset(i / width, 0) + panel.entry(i % width);
    Rows::put(&stored[size_t(at)], panel.offset(0, 1), 0, pair);
  }
  return stored;
}

// Returns the largest error of a tile against float64, over |a| |b| of its row and column.
template <typename Product, bool units = false>
double worst_error(int64_t rows_a, int64_t rows_b, int64_t begin, int64_t end) {
  using T = typename Product::Value;
  using Rows = typename Product::Rows;
  constexpr int side = Product::kTile;
  const int64_t pitch = end + Product::kDepth;  // entries that must not be read
  std::mt19937 generator(1);
  std::normal_distribution<double> normal;
  std::vector<T> a(size_t(rows_a * pitch)), b(size_t(rows_b * pitch)), c(side * side, T(-99));
  for (auto* values : {&a, &b})
    for (T& x : *values) x = T(normal(generator));
  using P = Panel<Rows, units>;
  const auto left = store<Rows, units>(a, pitch), right = store<Rows, units>(b, pitch);
  launch("multiply_tile", multiply_tile<Product, P>, {}, Product::kThreads, cudaStream_t(nullptr),
         simcore::cuda::DynamicShared{Product::kSharedBytes},
         P{left.data(), units ? rows_a : pitch, rows_a},
         P{right.data(), units ? rows_b : pitch, rows_b}, begin, end, c.data());
  double worst = 0;
  for (int64_t i = 0; i < side; i++)
    for (int64_t j = 0; j < side; j++) {
      double dot = 0, aa = 0, bb = 0;
      for (int64_t k = begin; k < end && i < rows_a && j < rows_b; k++) {
        const double x = double(a[size_t(i * pitch + k)]), y = double(b[size_t(j * pitch + k)]);
        dot += x * y;
        aa += x * x;
        bb += y * y;
      }
      const double error = std::fabs(double(c[size_t(i * side + j)]) - dot);
      worst = std::max(worst, error == 0 ? 0 : error / std::sqrt(aa * bb));
    }
  return worst;
}

// Checks a whole tile and two with rows missing, one of them stored in units; more steps than there
// are stages, and fewer.
template <typename Product>
void check_product(double bound) {
  const int64_t depth = Product::kDepth, side = Product::kTile;
  using simcore::cuda::Arrival;
  for (const Arrival arrival : {Arrival::early, Arrival::late, Arrival::mixed}) {
    simcore::cuda::arrival_of_copies = arrival;
    CHECK(worst_error<Product>(side, side, 0, 6 * depth) < bound);
    CHECK((worst_error<Product, true>(side - 7, 3, depth, 3 * depth) < bound));
    CHECK(worst_error<Product>(3, side - 7, depth, 2 * depth) < bound);
  }
}

template <typename Rows>
void check_rows(double bound) {
  std::mt19937 generator(2);
  std::normal_distribution<double> normal;
  std::vector<typename Rows::Value> values(64);
  for (auto& x : values) x = typename Rows::Value(normal(generator));
  const auto stored = store<Rows>(values, 32);
  for (int64_t i = 0; i < 64; i++) {
    const auto* row = &stored[size_t(i / 32 * 32 * Rows::kPlanes)];
    CHECK_NEAR(double(Rows::get(row, 32, i % 32)), double(values[size_t(i)]),
               bound * std::fabs(double(values[size_t(i)])) + (bound == 0 ? 0 : 0x1p-25));
  }
}

}  // namespace

TEST(rows_hold_what_was_put) {
  check_rows<PlainRows<double>>(0);
  check_rows<SplitRows<2>>(0x1p-22);
  check_rows<SplitRows<1>>(0x1p-11);
}

TEST(plain_products) {
  check_product<PlainProduct<float>>(0x1p-21);
  check_product<PlainProduct<double>>(0x1p-50);
}

// Returns the relative error of the product of two rows of positive numbers, all products in one
// accumulator, as tensor cores add them.
template <typename Product>
double error_of_positive_rows(int64_t entries) {
  std::mt19937 generator(3);
  std::uniform_real_distribution<double> uniform(0.5, 1);
  std::vector<float> a, c(Product::kTile * Product::kTile);
  a.resize(size_t(entries));
  double wanted = 0;
  for (float& x : a) {
    x = float(uniform(generator));
    wanted += double(x) * double(x);
  }
  const auto stored = store<typename Product::Rows>(a, entries);
  const Panel<typename Product::Rows> row{stored.data(), entries, 1};
  launch("multiply_tile", multiply_tile<Product, Panel<typename Product::Rows>>, {},
         Product::kThreads, cudaStream_t(nullptr),
         simcore::cuda::DynamicShared{Product::kSharedBytes}, row, row, int64_t(0), entries,
         c.data());
  return std::fabs(double(c[0]) - wanted) / wanted;
}

// What is added to an accumulator is cut towards zero: without a fresh one every kFresh entries,
// the error of 2,048 products of one sign is 8e-6.
TEST(accumulators_that_cut_leave_no_bias) {
  constexpr int64_t entries = check::kOneCase ? 128 : TensorProduct<2>::kChunk;
  CHECK(error_of_positive_rows<TensorProduct<2>>(entries) < 6e-7);
  simcore::cuda::accumulators_truncate = false;
  CHECK(error_of_positive_rows<TensorProduct<2>>(entries) < 6e-7);
  simcore::cuda::accumulators_truncate = true;
}

// Bounds: the rounding of the parts, 2^(-11 parts) of an entry each, and that of float32 sums.
TEST(pairs_of_float16_are_float32) { check_product<TensorProduct<2>>(0x1p-20); }
TEST(narrow_products) {
  check_product<NarrowProduct<2>>(0x1p-20);
  if (check::kOneCase) return;
  check_product<NarrowProduct<1>>(0x1p-10);
  CHECK(worst_error<NarrowProduct<1>>(32, 32, 0, 128) > 0x1p-16);
}
TEST(one_float16_part) {
  if (check::kOneCase) return;
  check_product<TensorProduct<1>>(0x1p-10);
  CHECK(worst_error<TensorProduct<1>>(128, 128, 0, 32) > 0x1p-16);
}

int main(int count, char** arguments) { return check::main(count, arguments); }
