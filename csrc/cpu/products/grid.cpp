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
Grid<T> make_grid(int64_t n, const std::vector<LayerView>& x, const std::vector<LayerView>& y,
                  const Runtime& rt) {
  Grid<T> grid;
  grid.n = n;
  grid.count_x = int64_t(x.size());
  grid.symmetric = y.empty();
  grid.layers = x;
  grid.layers.insert(grid.layers.end(), y.begin(), y.end());
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

template Grid<float> make_grid(int64_t, const std::vector<LayerView>&,
                               const std::vector<LayerView>&, const Runtime&);
template Grid<double> make_grid(int64_t, const std::vector<LayerView>&,
                                const std::vector<LayerView>&, const Runtime&);

}  // namespace simcore::cpu
