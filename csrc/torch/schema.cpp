// Every operator of simcore, in one page. Implementations: <name>_cpu.cpp; fake kernels and
// derivatives: simcore/_ops.py; twins: simcore/reference/.
#include <torch/library.h>

TORCH_LIBRARY(simcore, m) {
  // HSIC of all layer pairs: xy [Lx, Ly], xx [Lx], yy [Ly], float64. y empty: x with itself.
  // kernel "linear" | "rbf"; estimator "biased" | "unbiased"; method "auto" | "gram" | "feature";
  // max_memory in bytes, 0 for the default.
  m.def(
      "hsic_terms(Tensor[] x, Tensor[] y, str kernel, str estimator, float bandwidth, str method, "
      "int max_memory) -> (Tensor xy, Tensor xx, Tensor yy)");

  // Attention of all layer pairs, [Lx, Ly] float64: mean over heads of x of the max over heads of
  // y. x, y: [H, t, t] for every sentence of the first layer, then of the second ...; y empty: x
  // with itself. measure "js" | "pearson" | "frobenius"; max_memory as above.
  m.def(
      "attention_similarity(Tensor[] x, Tensor[] y, int sentences, str measure, bool causal, "
      "int max_memory) -> Tensor");
}
