// Head-to-head similarities of attention from sums over words or sentences.
//
// Math    JSD(p, q) = H(m) - (H(p) + H(q)) / 2 with m = (p + q) / 2 and H(p) = -sum_k p_k log p_k,
//         so with F(p) = sum p log p over all rows of a head, a pair needs F(m) alone:
//           js         1 - ((F(a) + F(b)) / 2 - F(m)) / words
//           pearson    sum over words of <u, v> / words, u and v centred rows of unit length
//           frobenius  1 - sum over sentences of ||A - B||_F / sentences
// Source  Wu et al. 2020, section 3.4 and appendix A.4
// Twin    simcore/reference/attention.py
#pragma once

#include "core/math/hsic_math.h"

namespace simcore {

enum class AttentionMeasure : int { js = 0, pearson = 1, frobenius = 2 };

// Whether rows are expected to sum to 1, and by how much those of a softmax may miss it, in
// bfloat16 too. Causal rows are made to.
SIMCORE_HD inline bool takes_distributions(AttentionMeasure measure, bool causal) {
  return measure == AttentionMeasure::js && !causal;
}
constexpr double kRowSum = 0.02;

struct HeadSums {
  double pair;    // js: F(m); pearson: of correlations; frobenius: of norms
  double self_a;  // js: F(a), else unused
  double self_b;
};

// `count`: words for js and pearson, sentences for frobenius. Rounding must not lift a similarity
// above 1.
SIMCORE_HD inline double head_similarity(AttentionMeasure measure, const HeadSums& s,
                                         double count) {
  if (measure == AttentionMeasure::frobenius) return 1.0 - s.pair / count;
  if (measure == AttentionMeasure::pearson) {
    const double mean = s.pair / count;
    return mean > 1.0 ? 1.0 : mean < -1.0 ? -1.0 : mean;
  }
  const double divergence = (s.self_a + s.self_b) / 2 - s.pair;
  return 1.0 - (divergence > 0 ? divergence / count : 0.0);
}

}  // namespace simcore
