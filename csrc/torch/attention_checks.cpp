#include "torch/attention_checks.h"

#include <c10/util/Exception.h>

#include "torch/convert.h"

namespace simcore {
namespace {

AttentionMeasure parse_measure(const std::string& name) {
  if (name == "js") return AttentionMeasure::js;
  if (name == "pearson") return AttentionMeasure::pearson;
  TORCH_CHECK_VALUE(name == "frobenius", "measure: wanted 'js', 'pearson' or 'frobenius', got '",
                    name, "'");
  return AttentionMeasure::frobenius;
}

// simcore/attention.py raises these errors in words for users; here they keep a direct call of the
// operator safe.
AttentionView attention_view(const at::Tensor& weights, const at::Tensor& layer_heads,
                             const at::Tensor& sentence_words) {
  TORCH_CHECK_VALUE(weights.dim() == 3 && weights.size(1) == weights.size(2),
                    "wanted shape [H, t, t], got ", weights.sizes());
  TORCH_CHECK_VALUE(weights.size(0) > 0 && weights.size(0) == layer_heads.size(0), "wanted ",
                    layer_heads.size(0), " heads and at least one, got ", weights.size(0));
  TORCH_CHECK_VALUE(weights.size(1) > 0 && weights.size(1) == sentence_words.size(1), "wanted ",
                    sentence_words.size(1), " words and at least one, got ", weights.size(1));
  return {weights.const_data_ptr(), dtype_of(weights), weights.size(0),  weights.size(1),
          weights.stride(0),        weights.stride(1), weights.stride(2)};
}

std::vector<AttentionLayer> attention_layers(at::TensorList sentences, at::TensorList first,
                                             int64_t count, const char* name) {
  TORCH_CHECK_VALUE(int64_t(sentences.size()) % count == 0, name, ": wanted a multiple of ", count,
                    " sentences, got ", sentences.size());
  std::vector<AttentionLayer> layers(sentences.size() / count);
  for (int64_t i = 0; i < int64_t(sentences.size()); i++)
    layers[i / count].push_back(
        attention_view(sentences[i], sentences[i / count * count], first[i % count]));
  return layers;
}

}  // namespace

AttentionProblem attention_problem(at::TensorList x, at::TensorList y, int64_t sentences,
                                   const std::string& measure, bool causal, int64_t max_memory) {
  TORCH_CHECK_VALUE(sentences > 0, "sentences: wanted at least 1, got ", sentences);
  TORCH_CHECK_VALUE(!x.empty(), "A: wanted at least one layer, got none");
  AttentionProblem problem;
  problem.x = attention_layers(x, x, sentences, "A");
  problem.y = attention_layers(y, x, sentences, "B");
  problem.measure = parse_measure(measure);
  problem.causal = causal;
  problem.max_memory = max_memory;
  return problem;
}

}  // namespace simcore
