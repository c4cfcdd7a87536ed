// The first steps of every launch sequence: describe and centre the layers.
#pragma once

#include <vector>

#include "core/views/layers_problem.h"
#include "cuda/base/device.h"
#include "cuda/products/layers.cuh"

namespace simcore::cuda {

// Returns the layers of both sides, x first, in the form that the kernels read.
inline std::vector<DeviceLayer> describe_layers(const LayersProblem& problem) {
  std::vector<DeviceLayer> table;
  int64_t column = 0, packed = 0;
  for (const auto* side : {&problem.x, &problem.y})
    for (const LayerView& view : *side) {
      const int64_t pitch = round_to(view.width, kPitchUnit);
      table.push_back({view, column, packed, pitch});
      column += view.width;
      packed += pitch;
    }
  return table;
}

inline void store_table(const std::vector<DeviceLayer>& table, DeviceLayer* on_device,
                        cudaStream_t stream) {
  const int64_t layers = int64_t(table.size());
  for (int64_t first = 0; first < layers; first += kLayersPerLaunch) {
    const int count = int(layers - first < kLayersPerLaunch ? layers - first : kLayersPerLaunch);
    LayerBatch batch{};
    for (int i = 0; i < count; i++) batch.layers[i] = table[size_t(first + i)];
    launch("store_layers", store_layers, {}, kLayersPerLaunch, stream, batch, count,
           on_device + first);
  }
}

struct Extent {
  int64_t layers, columns, widest;
};
inline Extent extent_of(const std::vector<DeviceLayer>& table) {
  Extent e{int64_t(table.size()), 0, 0};
  for (const DeviceLayer& layer : table) {
    e.columns += layer.view.width;
    e.widest = layer.view.width > e.widest ? layer.view.width : e.widest;
  }
  return e;
}

// Returns the number of shares of the rows in which columns are summed: enough loads in flight to
// fill the memory.
inline int64_t column_chunks(int64_t n, int64_t layers, int64_t widest, const Device& device) {
  constexpr int64_t blocks_per_multiprocessor = 16, least_rows = 64;
  const int64_t blocks = ceil_div(widest, kColumnThreads) * layers;
  const int64_t wanted = blocks_per_multiprocessor * device.multiprocessors / blocks;
  const int64_t most = ceil_div(n, least_rows);
  return wanted < 1 ? 1 : wanted > most ? most : wanted;
}

// sums: [chunks][columns]
inline void centre_layers(const DeviceLayer* layers, int64_t n, int64_t chunks,
                          const Extent& extent, ColumnSums* sums, const Centring& centring,
                          cudaStream_t stream) {
  launch("column_sums", column_sums,
         {ceil_div(extent.widest, kColumnThreads), extent.layers, chunks}, kColumnThreads, stream,
         layers, n, ceil_div(n, chunks), extent.columns, sums);
  launch("finish_centring", finish_centring, {extent.layers}, kCentringThreads, stream, layers, n,
         chunks, extent.columns, sums, centring);
}

}  // namespace simcore::cuda
