// The operators of the CCA family on the CPU: checks, and the calls into csrc/cpu/spectral and
// composed/.

#include <tuple>
#include <vector>

#include "cpu/base/memory.h"
#include "cpu/spectral/nuclear.h"
#include "torch/checks.h"
#include "torch/composed/aligned_cosines.h"
#include "torch/composed/nuclear_norms.h"
#include "torch/composed/principal_components.h"
#include "torch/composed/pwcca.h"
#include "torch/convert.h"
#include "torch/torch_runtime.h"

namespace simcore {
namespace {

std::tuple<std::vector<Tensor>, std::vector<Tensor>, std::vector<Tensor>> principal_components_cpu(
    const Tensors& layers, bool standardize) {
  check_layers(layers, "X", rows_of(layers));
  return composed::principal_components(layers, standardize);
}

// float64 layers take composed/, because csrc/cpu reduces in float32 and squares a band.
std::tuple<Tensor, Tensor, Tensor> nuclear_norms_cpu(const Tensors& x, const Tensors& y,
                                                     int64_t max_memory) {
  const LayersProblem problem = layers_problem(x, y);
  if (problem.has_float64()) return composed::nuclear_norms(x, y, max_memory);
  const cpu::Runtime runtime = torch_runtime();
  const int64_t left = cpu::memory_bound(max_memory) - cpu::packed_bytes(problem);
  const bool keep_packed = runtime.threads * cpu::nuclear_workspace(problem, true) <= left;
  const int threads = keep_packed ? runtime.threads
                                  : affordable_threads(cpu::nuclear_workspace(problem, false),
                                                       max_memory, runtime.threads);
  const cpu::NuclearResult result = cpu::nuclear_norms(problem, keep_packed, threads, runtime);
  const int64_t rows = problem.rows(), columns = problem.columns();
  return {to_tensor(result.xy, {rows, columns}), to_tensor(result.norm_x, {rows}),
          to_tensor(result.norm_y, {columns})};
}

std::tuple<Tensor, Tensor> pwcca_cpu(const Tensors& u_x, const Tensors& weighted_x,
                                     const Tensors& u_y, int64_t max_memory) {
  const int64_t n = rows_of(u_x);
  check_layers(u_x, "u_x", n);
  check_layers(u_y, "u_y", n);
  SIMCORE_CHECK(weighted_x.size() == u_x.size(), "weighted_x: wanted ", u_x.size(),
                " tensors, got ", weighted_x.size());
  for (size_t i = 0; i < u_x.size(); i++)
    SIMCORE_CHECK(weighted_x[i].dim() == 2 && weighted_x[i].size(0) == u_x[i].size(1),
                  "weighted_x[", i, "]: wanted ", u_x[i].size(1), " rows, got shape ",
                  weighted_x[i].sizes());
  return composed::pwcca(u_x, weighted_x, u_y, max_memory);
}

std::tuple<Tensor, Tensor> aligned_cosines_cpu(const Tensors& x, const Tensors& y,
                                               int64_t max_memory) {
  const int64_t n = rows_of(x);
  check_layers(x, "X", n);
  check_layers(y, "Y", n);
  return composed::aligned_cosines(x, y, max_memory);
}

}  // namespace

const Library spectral_functions("CPU", [](const Library& m) {
  m.impl("principal_components", boxed<principal_components_cpu>);
  m.impl("nuclear_norms", boxed<nuclear_norms_cpu>);
  m.impl("pwcca", boxed<pwcca_cpu>);
  m.impl("aligned_cosines", boxed<aligned_cosines_cpu>);
});

}  // namespace simcore
