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

  // Thin SVD of every layer's centred columns: u [n, r], s [r] (float64, descending), vt [r, p]
  // with r = min(n, p); standardize divides the columns by their standard deviation.
  m.def(
      "principal_components(Tensor[] x, bool standardize) -> (Tensor[] u, Tensor[] s, Tensor[] "
      "vt)");

  // ||Xc_i^T Yc_j||_* of all layer pairs: xy [Lx, Ly], and ||Xc_i||_F: norm_x [Lx], norm_y [Ly].
  // y empty: x with itself. nan for a layer without variance.
  m.def(
      "nuclear_norms(Tensor[] x, Tensor[] y, int max_memory) "
      "-> (Tensor xy, Tensor norm_x, Tensor norm_y)");

  // For every neuron of every layer of x (rows, layers one after another) and every layer of y:
  // max_k' |pearson(x_k, y_k')| (float64, nan where undefined) and the first such k' (int64, -1).
  // y empty: x with itself.
  m.def("best_partners(Tensor[] x, Tensor[] y, int max_memory) -> (Tensor best, Tensor partner)");

  // ||y_j^T x_k||^2 / ||x_k||^2 over centred columns, rows and columns as above, float64.
  m.def("explained_shares(Tensor[] x, Tensor[] y, int max_memory) -> Tensor");

  // PWCCA of all pairs from orthonormal bases u [n, k] and their weighted components
  // diag(s) V^T [k, p]; y empty: x with itself. [Lx, Ly] float64.
  m.def("pwcca(Tensor[] u_x, Tensor[] weighted_x, Tensor[] u_y, int max_memory) -> Tensor");

  // Attention of all layer pairs, [Lx, Ly] float64: mean over heads of x of the max over heads of
  // y. x, y: [H, t, t] for every sentence of the first layer, then of the second ...; y empty: x
  // with itself. measure "js" | "pearson" | "frobenius"; max_memory as above.
  m.def(
      "attention_similarity(Tensor[] x, Tensor[] y, int sentences, str measure, bool causal, "
      "int max_memory) -> Tensor");
}
