#include "torch/attention_checks.h"

#include "torch/convert.h"

namespace simcore {
namespace {

AttentionMeasure parse_measure(const std::string& name) {
  if (name == "js") return AttentionMeasure::js;
  if (name == "pearson") return AttentionMeasure::pearson;
  SIMCORE_CHECK(name == "frobenius", "measure: wanted 'js', 'pearson' or 'frobenius', got '", name,
                "'");
  return AttentionMeasure::frobenius;
}

// simcore/attention.py raises these errors in words for users; here they keep a direct call of the
// operator safe.
AttentionView attention_view(const Tensor& weights, int64_t heads, int64_t words) {
  SIMCORE_CHECK(weights.dim() == 3 && weights.size(1) == weights.size(2),
                "wanted shape [S, H, T, T] or [H, t, t], got ", weights.sizes());
  SIMCORE_CHECK(weights.size(0) > 0 && weights.size(0) == heads, "wanted ", heads,
                " heads and at least one, got ", weights.size(0));
  SIMCORE_CHECK(weights.size(1) > 0 && weights.size(1) == words, "wanted ", words,
                " words and at least one, got ", weights.size(1));
  return {weights.const_data_ptr(), dtype_of(weights), heads, words, weights.stride(0),
          weights.stride(1),        weights.stride(2)};
}

// The sentences of a padded batch, without a tensor for each of them.
AttentionLayer padded_layer(const Tensor& batch, Shape words) {
  SIMCORE_CHECK(
      batch.size(0) == int64_t(words.size()) && batch.size(1) > 0 && batch.size(2) == batch.size(3),
      "wanted shape [", words.size(), ", H, T, T], got ", batch.sizes());
  const char* data = static_cast<const char*>(batch.const_data_ptr());
  const DType dtype = dtype_of(batch);
  AttentionLayer layer;
  for (size_t s = 0; s < words.size(); s++) {
    SIMCORE_CHECK(words[s] >= 1 && words[s] <= batch.size(2), "wanted 1 to ", batch.size(2),
                  " words, got ", words[s]);
    layer.push_back({data + int64_t(s) * batch.stride(0) * batch.element_size(), dtype,
                     batch.size(1), words[s], batch.stride(1), batch.stride(2), batch.stride(3)});
  }
  return layer;
}

std::vector<AttentionLayer> attention_layers(const Tensors& given, Shape words, const char* name) {
  std::vector<AttentionLayer> layers;
  for (size_t i = 0; i < given.size();) {
    if (given[i].dim() == 4) {
      layers.push_back(padded_layer(given[i++], words));
      continue;
    }
    SIMCORE_CHECK(given.size() - i >= words.size(), name, ": wanted ", words.size(),
                  " sentences of layer ", layers.size(), ", got ", given.size() - i);
    const int64_t heads = given[i].dim() == 3 ? given[i].size(0) : 0;
    AttentionLayer& layer = layers.emplace_back();
    for (const int64_t count : words) layer.push_back(attention_view(given[i++], heads, count));
  }
  return layers;
}

}  // namespace

AttentionProblem attention_problem(const Tensors& x, const Tensors& y, Shape words,
                                   const std::string& measure, bool causal, int64_t max_memory) {
  SIMCORE_CHECK(!words.empty(), "words: wanted at least one sentence, got none");
  SIMCORE_CHECK(!x.empty(), "A: wanted at least one layer, got none");
  AttentionProblem problem;
  problem.x = attention_layers(x, words, "A");
  problem.y = attention_layers(y, words, "B");
  problem.measure = parse_measure(measure);
  problem.causal = causal;
  problem.max_memory = max_memory;
  return problem;
}

}  // namespace simcore
