// Nearest rows, and the similarities made of them, of all layer pairs on the CPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/math/hsic_math.h"
#include "core/views/layer_view.h"
#include "cpu/base/runtime.h"
#include "cpu/neighbours/rows.h"

namespace simcore::cpu {

struct NearestProblem {
  std::vector<LayerView> layers;
  int64_t n = 0, k = 0;  // 1 <= k <= n - 1
  Metric metric = Metric::cosine;
  std::string name;  // of the layers, in messages
};

// index [L, n, k]: the k nearest other rows of every row, nearest first, of equal ones the lower
// index first; -1 for a layer without variance (Rows::defined). values [L, n, k]: their cosine
// distances, their distances, or their inner products; nan where index is -1. own [L, n]: the
// squared lengths of the rows. Both may be null: then most rows need no distance in float64. Throws
// std::invalid_argument naming the layer that holds NaN or
// infinity, and for a max_memory (0: a quarter of the free memory) below what one layer takes.
void nearest_rows(const NearestProblem& problem, int64_t max_memory, const Runtime& rt,
                  int32_t* index, double* values, double* own);

// The lists of two sides, [Lx, n, k] and [Ly, n, k], as nearest_rows gives them.
struct ListPairs {
  int64_t n = 0, k = 0, count_x = 0, count_y = 0;
  const int32_t* x = nullptr;
  const int32_t* y = nullptr;  // null: x with itself

  bool symmetric() const { return y == nullptr; }
  int64_t columns() const { return symmetric() ? count_x : count_y; }
  const int32_t* column_lists() const { return symmetric() ? x : y; }
};

enum class ListMeasure : int { mutual = 0, jaccard = 1, rank = 2 };

// Returns [Lx, Ly]: the mean over rows of the agreement of two lists; nan where a layer has none.
std::vector<double> list_similarity(const ListPairs& pairs, ListMeasure measure, int64_t max_memory,
                                    const Runtime& rt);

// Returns [Lx, Ly]: the mean over rows of the cosine between the cosine distances of two layers
// from the row to its neighbours in either layer. layers: those of x, then those of y. Throws as
// nearest_rows does.
std::vector<double> second_order_similarity(const ListPairs& pairs,
                                            const std::vector<LayerView>& layers,
                                            int64_t max_memory, const Runtime& rt);

// The lists of one side with inner products, as nearest_rows gives them: index and values
// [count, n, k], own [count, n].
struct NeighbourValues {
  int64_t n = 0, k = 0, count = 0;
  const int32_t* index = nullptr;
  const double* values = nullptr;
  const double* own = nullptr;
};

// HSIC between the neighbours that two layers share: xy [Lx, Ly], and of each layer with itself, xx
// [Lx] and yy [Ly]; in units of a power of two for each layer. nan where a layer has no neighbours.
struct CknnaTerms {
  std::vector<double> xy, xx, yy;
};

// y without layers: x with itself.
CknnaTerms cknna_terms(const NeighbourValues& x, const NeighbourValues& y, Estimator estimator,
                       int64_t max_memory, const Runtime& rt);

}  // namespace simcore::cpu
