// Every operator of simcore, in one page. Implementations: *_cpu.cpp; fake kernels and
// derivatives: simcore/_ops.py; twins: simcore/reference/.
#include <torch/library.h>

TORCH_LIBRARY(simcore, m) {
  // HSIC of all layer pairs: xy [Lx, Ly], xx [Lx], yy [Ly], float64. y empty: x with itself.
  // kernel "linear" | "rbf"; estimator "biased" | "unbiased"; method "auto" | "gram" | "feature";
  // max_memory in bytes, 0 for the default.
  m.def(
      "hsic_terms(Tensor[] x, Tensor[] y, str kernel, str estimator, float bandwidth, str method, "
      "int max_memory) -> (Tensor xy, Tensor xx, Tensor yy)");

  // sum_ij w_ki w_kj x[i, j, a] y[r_k(i), r_k(j), b], float64 [draws, Lx, Ly], of Gram matrices
  // x [n, n, Lx], y [n, n, Ly] that are symmetric in the first two; r_k = rows[k] (int32
  // [draws, n]), w_k = weights[k] ([draws, n]; none: all 1).
  m.def("permuted_gram_products(Tensor x, Tensor y, Tensor rows, Tensor? weights=None) -> Tensor");

  // Median of the squared distances between the rows of each layer, as the RBF kernel's bandwidth
  // rule has it, float64 [Lx + Ly].
  m.def("median_squared_distances(Tensor[] x, Tensor[] y) -> Tensor");
}
