// The tile products of csrc/cuda, tensor-core variants included: their instructions are emulated
// (cuda_host/mma_host.h), everything around them is the code that a device runs.
//
// Mutations of a scratch copy that these tests were seen to catch
//   by wrong values     either barrier of PlainProduct::add; fragments of B exchanged, a product of
//                       parts left out, the read-ahead of B one step late in TensorProduct
//   ThreadSanitizer     either barrier of TensorProduct::add (fibres happen to run in an order that
//                       hides them from a plain run)
//   AddressSanitizer    `r < panel.rows` in either loader
#include "cuda/product_tensor.cuh"

#include <algorithm>
#include <random>

#include "../check.h"

using simcore::cuda::launch;
using simcore::cuda::Panel;
using simcore::cuda::PlainProduct;
using simcore::cuda::TensorProduct;

namespace {

template <typename Product, typename T = typename Product::Value>
void multiply_tile(Panel<T> a, Panel<T> b, int64_t begin, int64_t end, T* c) {
  Product product;
  product.add(a, b, begin, end);
  product.visit([&](int row, int column, T value) { c[row * Product::kTile + column] = value; });
}

// The largest error of a tile against float64, over |a| |b| of its row and column.
template <typename Product>
double worst_error(int64_t rows_a, int64_t rows_b, int64_t begin, int64_t end) {
  using T = typename Product::Value;
  constexpr int side = Product::kTile;
  const int64_t pitch = end + Product::kDepth;  // entries that must not be looked at
  std::mt19937 generator(1);
  std::normal_distribution<double> normal;
  // Exactly as many rows as there are: AddressSanitizer sees one too many.
  std::vector<T> a(size_t(rows_a * pitch)), b(size_t(rows_b * pitch)), c(side * side, T(-99));
  for (auto* values : {&a, &b})
    for (T& x : *values) x = T(normal(generator));
  launch("multiply_tile", multiply_tile<Product, T>, {}, Product::kThreads, cudaStream_t(nullptr),
         Panel<T>{a.data(), pitch, rows_a}, Panel<T>{b.data(), pitch, rows_b}, begin, end,
         c.data());
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

// Both a whole tile and one with rows missing; three steps, so that a read-ahead is stored twice.
template <typename Product>
void check_product(double bound) {
  const int64_t depth = Product::kDepth, side = Product::kTile;
  CHECK(worst_error<Product>(side, side, 0, 3 * depth) < bound);
  CHECK(worst_error<Product>(side - 7, 3, depth, 3 * depth) < bound);
}

}  // namespace

TEST(plain_products) {
  check_product<PlainProduct<float>>(0x1p-21);
  check_product<PlainProduct<double>>(0x1p-50);
}

// Bounds: what the parts hold, 2^(-8 parts) of an entry each, and float32 sums.
TEST(three_bfloat16_parts_are_float32) { check_product<TensorProduct<3>>(0x1p-21); }
TEST(two_bfloat16_parts) {
  check_product<TensorProduct<2>>(0x1p-15);
  CHECK(worst_error<TensorProduct<2>>(128, 128, 0, 32) > 0x1p-21);
}
TEST(one_bfloat16_part) {
  check_product<TensorProduct<1>>(0x1p-7);
  CHECK(worst_error<TensorProduct<1>>(128, 128, 0, 32) > 0x1p-13);
}

int main() { return check::main(); }
