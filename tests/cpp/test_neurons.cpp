// Best partners and multiple correlations of single neurons against plain double loops.
#include "cpu/neurons/neurons.h"

#include <cmath>
#include <vector>

#include "check.h"
#include "naive_neurons.h"

namespace {
using simcore::LayersProblem;
using namespace simcore::cpu;
using naive::centred;
using naive::DType;
using naive::norm;
using naive::product;

constexpr int64_t kRows = 65;
const std::vector<int64_t> kWidths{1, 33, 50};

TEST(best_partners_match_the_plain_loop) {
  const std::vector<naive::Layer> layers = naive::make_layers(kRows, kWidths, 0, {DType::f32, 3.0});
  LayersProblem problem{kRows, naive::views(layers), {}};
  const TilePlan plan = neuron_plan(problem, 0, 3);
  const Partners got = best_partners(problem, true, plan, naive::threads(3));
  CHECK(got.grid == best_partners(problem, true, plan, Runtime::serial()).grid);
  naive::check_partners(layers, layers, got.grid, got.best, got.partner, 1e-5);
}

TEST(multiple_correlations_with_one_direction_are_correlations) {
  const std::vector<naive::Layer> layers = naive::make_layers(kRows, kWidths, 0, {DType::f32, 3.0});
  const std::vector<double> other = centred(naive::make_layer(kRows, 1, 9));
  std::vector<float> direction(kRows);
  for (int64_t i = 0; i < kRows; i++) direction[i] = float(other[i] / norm(other, 1, 0, kRows));
  const LayersProblem problem{
      kRows, naive::views(layers), {{direction.data(), DType::f32, 1, 1, 1}}};
  const TilePlan plan = neuron_plan(problem, 0, 3);
  const std::vector<double> got = multiple_correlations(problem, plan, naive::threads(3));
  for (size_t a = 0; a < layers.size(); a++) {
    const std::vector<double> x = centred(layers[a]);
    double mean = 0;
    for (int64_t k = 0; k < kWidths[a]; k++)
      mean += std::abs(product(x, kWidths[a], k, other, 1, 0, kRows)) /
              norm(x, kWidths[a], k, kRows) / norm(other, 1, 0, kRows) / double(kWidths[a]);
    CHECK_NEAR(got[a], mean, 1e-5);
  }
}

}  // namespace

int main() { return check::main(); }
