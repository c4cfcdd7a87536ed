// Every operator that is written in C++, in one page, by family. A family has one name everywhere:
//   csrc/torch/<family>_cpu.cpp, _cuda.cpp   checks, and the calls into the kernels
//   csrc/cpu/<family>, csrc/cuda/<family>    kernels; operators composed of torch's own operations
//                                            are in csrc/torch/composed
//   simcore/_ops/<family>.py                 shapes of results, and derivatives in Python
// The heading of a family ("// ---- <family>.") names the files of simcore/reference that hold its
// float64 twins, and its operators that have a CUDA kernel. tests/project/test_registry.py checks
// every heading.
// Under torch.compile a whole grid is one more operator, made in simcore/_grid/one_operator.py.
// float64 layers arrive scaled (simcore/_grid/scale.py): sums of their entries, and sums of squares
// of products of two layers where such products are formed, are finite.
#include "torch/tensor.h"

const simcore::Library operators(nullptr, [](const simcore::Library& m) {
  // ---- hsic. Twins: hsic.py, distances.py, rowwise.py, stats.py. On CUDA: gram_terms.
  // The other operators of the family have no CUDA kernel: on CUDA devices they are composed of
  // torch's operations in simcore/_ops/hsic_batched.py and hsic_composed.py; hsic_terms may be
  // gram_terms there.

  // HSIC of all layer pairs: xy [Lx, Ly], xx [Lx], yy [Ly], float64. y empty: x with itself.
  // kernel "linear" | "rbf" | "distance" (of rows, not squared); estimator "biased" | "unbiased" |
  // "product" (tr(K L), no HSIC); method "auto" | "gram" | "feature"; max_memory in bytes, 0 for
  // the default; precision "highest" | "high" | "medium" of float32 products on a device that has
  // others than the highest.
  m.def(
      "hsic_terms(Tensor[] x, Tensor[] y, str kernel, str estimator, float bandwidth, str method, "
      "int max_memory, str precision=\"highest\") -> (Tensor xy, Tensor xx, Tensor yy)");

  // hsic_terms by kernels of a CUDA device that form Gram matrices in tiles; for CUDA alone.
  m.def(
      "gram_terms(Tensor[] x, Tensor[] y, str kernel, str estimator, float bandwidth, "
      "int max_memory, str precision) -> (Tensor xy, Tensor xx, Tensor yy)");

  // hsic_terms of the linear kernel by its Gram method, and sums over each layer's K scaled by
  // 2^(-2 exponent): squares [L, n] sum_{j != i} K_ij^2, cubes [L] sum_{i != j} K_ij^3, x then y.
  m.def(
      "gram_power_sums(Tensor[] x, Tensor[] y, str estimator, int max_memory) -> (Tensor xy, "
      "Tensor xx, Tensor yy, Tensor squares, Tensor cubes, Tensor exponents)");

  // Median of the squared distances between the rows of each layer, as the RBF kernel's bandwidth
  // rule has it, float64 [Lx + Ly].
  m.def("median_squared_distances(Tensor[] x, Tensor[] y) -> Tensor");

  // log mean exp(-2 |x_i - x_j|^2) over all ordered pairs of rows of each layer, the diagonal
  // included, float64 [Lx].
  m.def("uniformity(Tensor[] x, int max_memory) -> Tensor");

  // Of each layer, float64 [Lx] but for zeros: the length of its mean row; the mean cosine of its
  // rows to it, nan where it is zero up to rounding; the number of rows of zeros (int64), which
  // have no cosine. n may differ between layers. Without with_cosines cosine and zeros are
  // empty. name is the name of the layers in the message about entries that are not finite, on
  // the CPU alone.
  m.def(
      "mean_rows(Tensor[] x, bool with_cosines, int max_memory, str name=\"X\") "
      "-> (Tensor length, Tensor cosine, Tensor zeros)");

  // Sums over the rows of two layers of one width, and the rows that count, [Lx, Ly] float64; y
  // empty: x with itself. measure "cosine" | "angle" (over pi): rows of zeros, zeros [Lx + Ly]
  // (int64) of each layer, do not count; "labels" (1 where the largest entries, the first of equal
  // ones, are at different places) | "divergence" (Jensen-Shannon, base 2, of the softmax).
  m.def(
      "row_pairs(Tensor[] x, Tensor[] y, str measure, int max_memory) "
      "-> (Tensor sums, Tensor counts, Tensor zeros)");

  // sum_ij w_ki w_kj x[i, j, a] y[r_k(i), r_k(j), b], float64 [draws, Lx, Ly], of Gram matrices
  // x [n, n, Lx], y [n, n, Ly] that are symmetric in the first two; r_k = rows[k] (int32
  // [draws, n]), w_k = weights[k] ([draws, n]; none: all 1).
  m.def("permuted_gram_products(Tensor x, Tensor y, Tensor rows, Tensor? weights=None) -> Tensor");

  // ---- spectral. Twins: cca.py. On CUDA: small_svd.
  // The other operators of the family have no CUDA kernel: on CUDA devices they are composed of
  // torch's batched matrix products in simcore/_ops/spectral_batched.py and aligned_composed.py.

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

  // PWCCA of all pairs from orthonormal bases u [n, k] and their weighted components
  // diag(s) V^T [k, p]; y empty: x with itself. [Lx, Ly] float64. errors: by how much rounding in
  // the precision of a pair may move the value, because it mixes directions of close correlations.
  m.def(
      "pwcca(Tensor[] u_x, Tensor[] weighted_x, Tensor[] u_y, int max_memory) "
      "-> (Tensor values, Tensor errors)");

  // Mean cosine of the rows of x Q and y, Q the rotation of x nearest to y, uncentred; rows of
  // zeros are left out: [Lx, Ly] float64, nan for layers of zeros; y empty: x with itself. errors:
  // by how much rounding in the precision of a pair may move the value. Entries are not checked.
  m.def(
      "aligned_cosines(Tensor[] x, Tensor[] y, int max_memory) -> (Tensor values, Tensor errors)");

  // Thin SVDs of small matrices m [B, k, l], k >= l, both at most 128, float32 on a CUDA device:
  // u [B, k, l], s [B, l] descending, v [B, l, l], a singular vector a column.
  m.def("small_svd(Tensor m) -> (Tensor u, Tensor s, Tensor v)");

  // ---- neurons. Twins: matching.py. On CUDA: none.
  // All other operators of the family are composed of torch's operations on every device, in
  // simcore/_ops/partners_composed.py and neurons_composed.py; the host assigns neurons.

  // The assignment of largest total of each matrix of gains [B, p, q] (float32 or float64, finite):
  // partner [B, p] int64, the column of each row, -1 for a row without one. rows [B, p] and columns
  // [B, q] (bool) say which of them take part; the smaller number of either is assigned whole.
  m.def("best_assignments(Tensor gains, Tensor rows, Tensor columns) -> Tensor partner");

  // ---- rsa. Twins: rsa.py. On CUDA: none.
  // On CUDA devices both are composed of torch's operations in simcore/_ops/rsa.py.

  // Rows of x centred, of unit length, less their mean row: rows [n, p] in dtype (float32 or
  // float64); halves [n] half their squared lengths, nan for a constant row, whose entries are 0;
  // rounding [], float64: the variance that the dissimilarities 1 - pearson would have if all of it
  // came from rounding errors of x.
  // name is the name of x in the message about entries that are not finite.
  m.def(
      "standardised_rows(Tensor x, ScalarType dtype, str name=\"X[0]\") "
      "-> (Tensor rows, Tensor halves, Tensor rounding)");

  // Covariances xy [Lx, Ly] and variances xx [Lx], yy [Ly] of the ranks, scaled to [0, 1], of the
  // dissimilarities 1 - pearson between the rows of each layer; y empty: x with itself. spread and
  // rounding [Lx + Ly]: the variance of the dissimilarities themselves and the share of it that
  // rounding of the layer explains, in units of their squared mean times ((n - 1) / 2n)^2; nan
  // where a row is constant. float64.
  m.def(
      "rank_moments(Tensor[] x, Tensor[] y, int max_memory) "
      "-> (Tensor xy, Tensor xx, Tensor yy, Tensor spread, Tensor rounding)");

  // ---- neighbours. Twins: neighbours.py. On CUDA: none.
  // On CUDA devices all are composed of torch's operations in simcore/_ops/neighbours_composed.py.

  // The k nearest other rows of every row of each layer, nearest first: index [L, n, k] (int32, -1
  // for a layer without variance), values [L, n, k] their cosine distances, distances or inner
  // products, own [L, n] the squared lengths of the rows; float64. metric "cosine" | "euclidean" |
  // "inner". name is the name of the layers in the message about entries that are not finite.
  // Without with_values, values and own have no layers, and the lists take less time.
  m.def(
      "nearest_rows(Tensor[] x, int k, str metric, int max_memory, str name=\"X\", "
      "bool with_values=True) "
      "-> (Tensor index, Tensor values, Tensor own)");

  // Mean over the rows of the agreement of two lists of neighbours x [Lx, n, k], y [Ly, n, k]
  // (int32; y empty: x with itself): [Lx, Ly] float64. measure "mutual" | "jaccard" | "rank".
  m.def("list_similarity(Tensor x, Tensor y, str measure, int max_memory) -> Tensor");

  // Mean over the rows of the cosine between the cosine distances of two layers from the row to its
  // neighbours in either layer, [Lx, Ly] float64; lists [L, n, k] as above. y empty: x with itself.
  m.def(
      "second_order_similarity(Tensor[] x, Tensor[] y, Tensor index_x, Tensor index_y, "
      "int max_memory) -> Tensor");

  // HSIC of the inner products of the neighbours that two layers share: xy [Lx, Ly], xx [Lx],
  // yy [Ly], float64, in units of a power of two for each layer; from what nearest_rows gives for
  // "inner" (y empty: x with itself). estimator "biased" | "unbiased".
  m.def(
      "cknna_terms(Tensor index_x, Tensor values_x, Tensor own_x, Tensor index_y, Tensor values_y, "
      "Tensor own_y, str estimator, int max_memory) -> (Tensor xy, Tensor xx, Tensor yy)");

  // ---- attention. Twins: attention.py. On CUDA: attention_similarity.

  // Attention of all layer pairs, [Lx, Ly] float64: mean over heads of x of the max over heads of
  // y. x, y: for each layer one padded [S, H, T, T], or [H, t, t] for every sentence; y empty: x
  // with itself. words [S]: of the sentences. measure "js" | "pearson" | "frobenius"; max_memory as
  // above. rows_off [Lx + Ly], int64 on the host: the rows of each layer that do not sum to 1, for
  // "js" that is not causal.
  m.def(
      "attention_similarity(Tensor[] x, Tensor[] y, SymInt[] words, str measure, bool causal, "
      "int max_memory) -> (Tensor grid, Tensor rows_off)");

  // ---- coupling. Twins: coupling.py. On CUDA: affine_coupling, affine_coupling_backward.

  // Affine coupling of the half x [n, k] or [B, n, k] that changes; params [.., n, 2k] holds s_raw,
  // then t. s = clamp tanh(s_raw / clamp); y = x exp(s) + t and log_det = sum s a row, or inverse:
  // y = (x - t) exp(-s) and log_det = -sum s. float64 if an input is, else float32.
  m.def(
      "affine_coupling(Tensor x, Tensor params, float clamp, bool inverse) "
      "-> (Tensor y, Tensor log_det)");

  // Gradients of x and params; kept is x (forward) or the y that affine_coupling gave (inverse).
  m.def(
      "affine_coupling_backward(Tensor grad_y, Tensor grad_log_det, Tensor kept, Tensor params, "
      "float clamp, bool inverse) -> (Tensor grad_x, Tensor grad_params)");
});
