// Products of reordered and weighted Gram matrices against the plain loop.
#include "cpu/hsic/permutation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "check.h"
#include "naive.h"

namespace {
using namespace simcore::cpu;

// Gram matrices [n, n, count], symmetric in the first two.
template <typename T>
std::vector<T> grams(int64_t n, int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<T> g(n * n * count);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++)
      for (int64_t l = 0; l < count; l++)
        g[(i * n + j) * count + l] = g[(j * n + i) * count + l] = T(normal(generator));
  return g;
}

template <typename T>
void compare(int64_t n, int64_t count_x, int64_t count_y, int64_t draws, bool weighted,
             double tolerance) {
  const std::vector<T> x = grams<T>(n, count_x, 1), y = grams<T>(n, count_y, 2);
  std::mt19937 generator(3);
  std::vector<int32_t> rows(draws * n);
  std::vector<T> weights(draws * n);
  for (int64_t k = 0; k < draws; k++) {
    std::iota(rows.begin() + k * n, rows.begin() + (k + 1) * n, 0);
    std::shuffle(rows.begin() + k * n, rows.begin() + (k + 1) * n, generator);
    for (int64_t i = 0; i < n; i++) weights[k * n + i] = T(generator() % 4);
  }
  PermutedGrams<T> problem{n,        count_x,  count_y,     draws,
                           x.data(), y.data(), rows.data(), weighted ? weights.data() : nullptr};
  std::vector<double> serial(draws * count_x * count_y), threaded(serial.size());
  permuted_gram_products(problem, serial.data(), Runtime::serial());
  permuted_gram_products(problem, threaded.data(), naive::threads(3));
  CHECK(serial == threaded);
  for (int64_t k = 0; k < draws; k++)
    for (int64_t a = 0; a < count_x; a++)
      for (int64_t b = 0; b < count_y; b++) {
        double want = 0, size = 0;
        for (int64_t i = 0; i < n; i++)
          for (int64_t j = 0; j < n; j++) {
            const double w = weighted ? double(weights[k * n + i]) * double(weights[k * n + j]) : 1;
            const double term = w * double(x[(i * n + j) * count_x + a]) *
                                double(y[(rows[k * n + i] * n + rows[k * n + j]) * count_y + b]);
            want += term, size += std::abs(term);
          }
        CHECK_NEAR(serial[(k * count_x + a) * count_y + b], want, tolerance * size);
      }
}

TEST(products_match_the_plain_loop) {
  for (int64_t n : {1, 2, 31, 33, 70})
    for (bool weighted : {false, true}) {
      check::context = "n = " + std::to_string(n) + (weighted ? ", weighted" : "");
      compare<float>(n, 1, 17, 3, weighted, 1e-5);
      compare<double>(n, 13, 3, 5, weighted, 1e-13);
    }
}

}  // namespace

int main() { return check::main(); }
