#include "cpu/products/grid.h"

#include <stdexcept>
#include <string>

namespace simcore::cpu {
namespace {

std::string layer_name(int64_t index, int64_t count_x) {
  return index < count_x ? "X[" + std::to_string(index) + "]"
                         : "Y[" + std::to_string(index - count_x) + "]";
}

}  // namespace

template <typename T>
Grid<T> make_grid(const LayersProblem& problem, const Runtime& rt) {
  Grid<T> grid;
  grid.n = problem.n;
  grid.count_x = problem.rows();
  grid.symmetric = problem.y.empty();
  grid.layers = problem.x;
  grid.layers.insert(grid.layers.end(), problem.y.begin(), problem.y.end());
  grid.centring.resize(grid.layers.size());
  parallel_tasks(rt, grid.count(), [&](int64_t l, int) {
    grid.centring[l] = make_centring<T>(grid.layers[l], grid.n);
  });
  for (int64_t l = 0; l < grid.count(); l++) {
    const int64_t bad = grid.centring[l].nonfinite;
    if (bad > 0)
      throw std::invalid_argument(layer_name(l, grid.count_x) + ": wanted finite values, got " +
                                  std::to_string(bad) + " NaN or infinite of " +
                                  std::to_string(grid.n * grid.layers[l].width));
  }
  return grid;
}

template Grid<float> make_grid(const LayersProblem&, const Runtime&);
template Grid<double> make_grid(const LayersProblem&, const Runtime&);

}  // namespace simcore::cpu
