// The instruction-set dependent inner loops, as one table of functions per (instruction set, T).
//
// Panels: a block of rows is stored as panels of `width` rows, each [k][width], so that one vector
// register holds one column of a panel and both operands of a product are read in order. The same
// panel serves as left operand (broadcast, mr rows at a time) and as right operand (up to 3 panels
// side by side), so every block of data is packed once.
#pragma once

#include <cstdint>

#include "core/math/hsic_math.h"
#include "cpu/base/half.h"
#include "cpu/base/layer.h"

namespace simcore::cpu {

constexpr int kMaxPanels = 3;      // panels side by side in one micro-kernel call
constexpr int64_t kMaxUnit = 64;   // >= kMaxPanels * width for every instruction set
constexpr int64_t kTaskRows = 96;  // rows of a tile per task: their panels stay in L2

// Bits of the result of IsaTable::flaws.
constexpr int kNotFinite = 1, kNegative = 2;
// Centred rows of attention below this length count as constant: one repeated value may leave
// rounding errors.
constexpr double kConstantRow = 1e-12;

// Prefetch distances of an affine coupling in entries: in the half that changes, and in its params.
struct CouplingAhead {
  int64_t row, params;
};

// The two least of some numbers, and their places; the first place of equal ones.
struct LeastTwo {
  double least, second;
  int64_t at, second_at;
};

// The least of some lengths, and its place; -1 if all are infinite.
struct Nearest {
  double length;
  int64_t at;
};

template <typename T>
struct IsaTable {
  const char* name;
  int width;  // rows per panel = elements per vector register
  int mr;     // rows of the left operand per micro-kernel call; divides width

  // c[i][j] (+)= sum_k a[k * width + i] * b[(j / width) * b_stride + k * width + j % width]
  // for i < mr, j < panels * width; micro[panels - 1].
  void (*micro[kMaxPanels])(const T* a, const T* b, int64_t b_stride, int64_t depth, T* c,
                            int64_t c_stride, bool accumulate);

  // out[i][j] += block[i][j] of a [rows, cols] block, cols a multiple of width: sums of products in
  // T go on in float64.
  void (*add_block)(const T* block, int64_t rows, int64_t cols, double* out, int64_t out_stride);

  // Centres rows [row, row + rows) (rows <= width, the rest is zero) over all columns into one
  // panel [layer.width][width]; norms[width] gets each row's squared length.
  void (*pack_rows)(const LayerView& layer, const Centring<T>& centring, int64_t row, int64_t rows,
                    T* panel, double* norms);

  // Centres columns [col, col + cols) of rows [row, row + rows) into panels [rows][width], which
  // start panel_stride entries apart; missing columns of the last panel are zero. These panels are
  // operands of products whose depth runs over examples.
  void (*pack_columns)(const LayerView& layer, const Centring<T>& centring, int64_t row,
                       int64_t rows, int64_t col, int64_t cols, T* panels, int64_t panel_stride);

  // lengths[i] (+)= sum_k panel[k][i]^2 of a panel [depth][width], rounded as the products of
  // micro are: the length of a row and its product with an equal row have the same bits.
  void (*squared_lengths)(const T* panel, int64_t depth, T* lengths, bool accumulate);

  // Packs one panel [depth][width] from `rows` plain arrays source[r * stride + k]; the rest of the
  // panel is zero.
  void (*pack_plain)(const T* source, int64_t stride, int64_t rows, int64_t depth, T* panel);

  // panels[l / width][k][l % width] = row[index[k] * layers + l] for l < layers, k < depth; the
  // rest of the last panel is zero.
  void (*gather_entries)(const T* row, int64_t layers, const int32_t* index, int64_t depth,
                         T* panels);

  // g[i][j] <- exp(-gamma * max(0, norm_i + norm_j - 2 g[i][j])) - shift over a [rows, cols] block;
  // cols is a multiple of width.
  void (*rbf)(T* g, int64_t rows, int64_t cols, const T* norm_i, const T* norm_j, T gamma, T shift);

  // g[i][j] <- sqrt(max(0, norm_i + norm_j - 2 g[i][j])) - shift, likewise.
  void (*distance)(T* g, int64_t rows, int64_t cols, const T* norm_i, const T* norm_j, T shift);

  // Appends the squared distances of g[begin, end) of one row that lie in [lo, hi] to out, which
  // has room for end - begin more. Returns the number of appended distances, and adds the number of
  // distances below lo to *below.
  int64_t (*select)(const T* g, int64_t begin, int64_t end, T norm_i, const T* norm_j, T lo, T hi,
                    T* out, int64_t* below);

  // out[k] = source[k * stride] as T, k < count.
  void (*load)(const void* source, DType dtype, int64_t stride, int64_t count, T* out);

  // Returns kNotFinite if x[0, count) holds NaN or infinity, kNegative if it holds a weight below
  // 0, kNotFinite | kNegative for both, else 0.
  int (*flaws)(const T* x, int64_t count);

  // Returns the place of the largest of x[0, count), the first of equal ones. NaN is passed over;
  // 0 if there is nothing else.
  int64_t (*place_of_largest)(const T* x, int64_t count);

  // Centres `count` rows of `length` entries each and scales them to unit length; a row whose
  // centred length is kConstantRow at most becomes 0.
  void (*unit_rows)(T* rows, int64_t count, int64_t length);

  // sums[i * sums_stride + j] += sum_k term(p[i * stride + k], q[j * stride + k]) for i < p_rows,
  // j < q_rows; length is a multiple of width and at most columns. One per AttentionMeasure: with
  // m = p + q, m log m (0 at 0; p, q >= 0); p q; (p - q)^2.
  struct PairSums {
    void (*add)(const T* p, int64_t p_rows, const T* q, int64_t q_rows, int64_t stride,
                int64_t length, double* sums, int64_t sums_stride);
    int64_t rows;     // p_rows at most
    int64_t columns;  // of one call, which sums in T
  } pair_sums[3];

  // Columns of one row of an affine coupling (core/math/coupling_math.h), [0] forward, [1] inverse:
  // out[k] for k < count, and their log-determinant added to *log_det; sums run in T over a call.
  void (*couple[2])(const T* x, const T* s_raw, const T* t, int64_t count, T clamp,
                    CouplingAhead ahead, T* out, double* log_det);

  // Computes the gradients of `couple`; `kept` is x (forward) or the result (inverse).
  void (*couple_gradients[2])(const T* grad, T grad_log_det, const T* kept, const T* s_raw,
                              int64_t count, T clamp, CouplingAhead ahead, T* grad_x, T* grad_s_raw,
                              T* grad_t);

  // Returns the two least of cost[j] - prices[j], j < count; count is a multiple of width.
  LeastTwo (*least_two)(const T* cost, const double* prices, int64_t count);

  // lengths[j] <- min(lengths[j], cost[j] - prices[j] + length) for j < count, a multiple of width;
  // where this is shorter, previous[j] <- from. Returns the least of the lengths.
  Nearest (*relax)(const T* cost, const double* prices, int64_t count, double length, int64_t from,
                   double* lengths, int64_t* previous);
};

// The widest set that this processor has, or the one SIMCORE_CPU_ISA names (generic, avx2, avx512;
// for tests). Throws std::invalid_argument for a name that is unknown or not available here.
template <typename T>
const IsaTable<T>& isa_table();

const char* isa_name();

}  // namespace simcore::cpu
