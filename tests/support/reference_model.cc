#include "tests/support/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <numeric>

#include "common/base/check.h"
#include "common/tensor/block_rows.h"
#include "common/tensor/pack.h"
#include "tests/support/packed_block_reader.h"

namespace moestro {
namespace {

// Codes of I8; the scale of their row is applied to the sum.
double Int8Code(const weights::TensorView& view, int64_t row, int64_t col) {
  constexpr int64_t kPlaces[] = {0, 2, 1, 3};
  const int64_t padded = (view.cols + 63) / 64 * 64;
  return static_cast<int8_t>(
      view.data[row / 64 * 64 * padded + (col / 4 * 4 + row % 64 / 16) * 64 + row % 16 * 4 + kPlaces[col % 4]]);
}

double Element(const weights::TensorView& view, int64_t row, int64_t col) {
  if (view.dtype == DType::kI8) return Int8Code(view, row, col);
  const bool packed = view.layout == weights::TensorLayout::kPacked;
  if (IsBlockFormat(view.dtype) && packed) {
    const uint8_t* group = view.data + PackedBytes(view.dtype, row / kRowGroup * kRowGroup, view.cols);
    return testing::PackedBlockReader(view.dtype, group).Weight(row % kRowGroup, col);
  }
  if (IsBlockFormat(view.dtype)) {
    std::vector<float> weights(static_cast<size_t>(view.cols));
    DequantizeRow(view.dtype, view.data + row * RowBytes(view.dtype, view.cols), view.cols, weights.data());
    return weights[static_cast<size_t>(col)];
  }
  const uint8_t* at = view.data + (packed ? PackedOffset(view.dtype, view.cols, row, col)
                                          : (row * view.cols + col) * DTypeBytes(view.dtype));
  if (view.dtype == DType::kF8E4M3) {
    const int64_t blocks = (view.cols + kScaleBlock - 1) / kScaleBlock;
    return static_cast<double>(FromE4M3(*at)) * view.scales[row / kScaleBlock * blocks + col / kScaleBlock];
  }
  if (view.dtype == DType::kBF16 || view.dtype == DType::kF16) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return view.dtype == DType::kBF16 ? FromBf16(bits) : FromF16(bits);
  }
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// W8A8: a token's inputs become codes of one scale, which is returned. In F32, as kernels say: a quotient halfway
// between two codes would be another one in double precision.
double RoundToInt8(std::vector<double>& inputs) {
  float largest = 0;
  for (const double input : inputs) largest = std::max(largest, std::fabs(static_cast<float>(input)));
  if (largest == 0) return 0;
  const float scale = largest / 127.0f;
  for (double& input : inputs) input = std::nearbyint(static_cast<float>(input) / scale);
  return scale;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Indices of the `count` largest values in descending order, lower index first on ties.
std::vector<size_t> Largest(const std::vector<double>& values, int64_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(count);
  return order;
}

// Distance between the smallest of the `count` largest values and the next value.
double Margin(std::vector<double> values, int64_t count) {
  if (count >= static_cast<int64_t>(values.size())) return std::numeric_limits<double>::infinity();
  std::sort(values.begin(), values.end(), std::greater<>());
  return values[count - 1] - values[count];
}

}  // namespace

ReferenceModel::ReferenceModel(const weights::WeightSegment& segment, Int8Activations int8_activations)
    : spec_(segment.spec()), rounds_to_int8_(int8_activations != Int8Activations::kBf16) {
  for (const weights::TensorEntry& entry : segment.directory()) {
    const weights::TensorView view = segment.View(entry);
    Matrix matrix{view.rows, view.cols, {}, {}};
    if (view.dtype == DType::kI8) matrix.row_scales.assign(view.scales, view.scales + view.rows);
    matrix.values.reserve(view.rows * view.cols);
    for (int64_t row = 0; row < view.rows; ++row) {
      for (int64_t col = 0; col < view.cols; ++col) matrix.values.push_back(Element(view, row, col));
    }
    tensors_.emplace(std::string(view.name), std::move(matrix));
  }
}

const ReferenceModel::Matrix& ReferenceModel::Tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  MOE_CHECK(found != tensors_.end());
  return found->second;
}

const ReferenceModel::Matrix& ReferenceModel::LayerTensor(int64_t layer, const std::string& suffix) const {
  return Tensor("model.layers." + std::to_string(layer) + "." + suffix);
}

double ReferenceModel::Rounded(double value) const {
  return rounding_ == Rounding::kNone ? value : FromBf16(ToBf16(static_cast<float>(value)));
}

ReferenceModel::Vector ReferenceModel::Rounded(Vector values) const {
  for (double& value : values) value = Rounded(value);
  return values;
}

ReferenceModel::Vector ReferenceModel::Linear(const std::string& name, const Vector& x) const {
  const Matrix& w = Tensor(name);
  Vector input = Rounded(x);
  const double scale = !w.row_scales.empty() && rounds_to_int8_ ? RoundToInt8(input) : 1;
  Vector y(w.rows, 0);
  for (int64_t n = 0; n < w.rows; ++n) {
    for (int64_t k = 0; k < w.cols; ++k) y[n] += w.at(n, k) * input[k];
    if (!w.row_scales.empty()) y[n] *= scale * w.row_scales[n];
  }
  return y;
}

ReferenceModel::Vector ReferenceModel::Biased(const std::string& prefix, const Vector& x, bool biased) const {
  Vector y = Linear(prefix + ".weight", x);
  if (!biased) return y;
  const Matrix& bias = Tensor(prefix + ".bias");
  for (size_t n = 0; n < y.size(); ++n) y[n] += bias.values[n];
  return y;
}

ReferenceModel::Vector ReferenceModel::Projected(const std::string& prefix, const Vector& x) const {
  Vector y = Biased(prefix, x, spec_.qkv_biases != 0);
  if (spec_.clip_qkv == 0) return y;
  for (double& value : y) value = std::clamp(value, -spec_.clip_qkv, spec_.clip_qkv);
  return y;
}

ReferenceModel::Vector ReferenceModel::Norm(const std::string& name, const Vector& x, double eps) const {
  const Matrix& w = Tensor(name);
  double sum = 0;
  for (const double value : x) sum += value * value;
  const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * w.values[i];
  return y;
}

ReferenceModel::Vector ReferenceModel::NormResidual(const std::string& name, Vector x) const {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  if (spec_.layer_norms != 0) {
    for (double& value : x) value -= mean;
  }
  return Norm(name, x, spec_.rms_norm_eps);
}

ReferenceModel::Vector ReferenceModel::Rotate(const Vector& x, int64_t position) const {
  const weights::YarnSpec& yarn = spec_.yarn;
  const double d = static_cast<double>(x.size());
  const auto gain = [&](double m) { return yarn.factor <= 1 ? 1 : 0.1 * m * std::log(yarn.factor) + 1; };
  const auto pair_of = [&](double beta) {
    const double original = static_cast<double>(yarn.original_max_position_embeddings);
    return d * std::log(original / (beta * 2 * std::numbers::pi)) / (2 * std::log(spec_.rope_theta));
  };
  const bool whole = spec_.yarn_between_pairs == 0;
  const double fast = pair_of(yarn.beta_fast), slow = pair_of(yarn.beta_slow);
  const double low = std::max(whole ? std::floor(fast) : fast, 0.0);
  double high = std::min(whole ? std::ceil(slow) : slow, d - 1);
  if (low == high) high += 0.001;
  double amplitude = 1;
  if (yarn.enabled != 0) {
    if (yarn.attention_factor != 0) {
      amplitude = yarn.attention_factor;
    } else {
      amplitude =
          yarn.mscale != 0 && yarn.mscale_all_dim != 0 ? gain(yarn.mscale) / gain(yarn.mscale_all_dim) : gain(1);
    }
  }
  Vector y(x.size());
  for (size_t i = 0; i < x.size() / 2; ++i) {
    double theta = std::pow(spec_.rope_theta, -2.0 * static_cast<double>(i) / d);
    if (yarn.enabled != 0) {
      const double gamma = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      theta = theta * (1 - gamma) + theta / yarn.factor * gamma;
    }
    if (spec_.llama3_rope != 0) {
      const double rotations =
          static_cast<double>(yarn.original_max_position_embeddings) * theta / 2 / std::numbers::pi;
      const double smooth = (rotations - yarn.beta_slow) / (yarn.beta_fast - yarn.beta_slow);
      theta *= std::clamp(smooth, 0.0, 1.0) * (1 - 1 / yarn.factor) + 1 / yarn.factor;
    }
    const double angle = static_cast<double>(position) * theta;
    const bool halves = spec_.num_kv_heads > 0;
    const size_t a = halves ? i : 2 * i;
    const size_t b = halves ? x.size() / 2 + i : 2 * i + 1;
    y[a] = amplitude * (x[a] * std::cos(angle) - x[b] * std::sin(angle));
    y[b] = amplitude * (x[a] * std::sin(angle) + x[b] * std::cos(angle));
  }
  return y;
}

double ReferenceModel::SoftmaxScale() const {
  double scale = std::pow(static_cast<double>(spec_.qk_nope_head_dim + spec_.qk_rope_head_dim), -0.5);
  if (spec_.yarn.enabled != 0 && spec_.yarn.mscale_all_dim != 0 && spec_.yarn.factor > 1) {
    scale *= std::pow(0.1 * spec_.yarn.mscale_all_dim * std::log(spec_.yarn.factor) + 1, 2);
  }
  return scale;
}

// Softmax weights, not divided by their sum. Rounded ones are exp(score - maximum so far), where "so far" extends to
// the end of the token's block of 64: the values that an online softmax rounds. A score of -inf is that of a token out
// of sight.
ReferenceModel::Vector ReferenceModel::SoftmaxWeights(const Vector& scores) const {
  constexpr size_t kBlock = 64;
  const double last_maximum = *std::max_element(scores.begin(), scores.end());
  Vector weights;
  for (size_t t = 0; t < scores.size(); ++t) {
    if (std::isinf(scores[t])) {
      weights.push_back(0);
      continue;
    }
    const size_t end = std::min(scores.size(), (t / kBlock + 1) * kBlock);
    const double maximum = *std::max_element(scores.begin(), scores.begin() + static_cast<int64_t>(end));
    weights.push_back(Rounded(std::exp(scores[t] - maximum)) * std::exp(maximum - last_maximum));
  }
  return weights;
}

// Scores over the latent: sum_n q[n] * (W[n] . c) = (sum_n q[n] * W[n]) . c, and the same for values. The order of
// summation affects only the rounding.
ReferenceModel::Vector ReferenceModel::AttendHead(int64_t layer, int64_t head, const Vector& nope, const Vector& rope,
                                                  const std::vector<CachedToken>& cache) const {
  const Matrix& kv_b = LayerTensor(layer, "self_attn.kv_b_proj.weight");
  const int64_t first_key = head * (spec_.qk_nope_head_dim + spec_.v_head_dim);
  const int64_t first_value = first_key + spec_.qk_nope_head_dim;
  const auto up = [&](int64_t first, int64_t rows, const Vector& latent) {
    Vector result(rows, 0);
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t c = 0; c < spec_.kv_lora_rank; ++c) result[n] += kv_b.at(first + n, c) * latent[c];
    }
    return result;
  };
  const auto dot = [](const Vector& x, const Vector& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  const bool absorbed = rounding_ != Rounding::kUnabsorbed;
  const Vector narrow = Rounded(nope);
  Vector latent_query(spec_.kv_lora_rank, 0);
  for (int64_t n = 0; n < spec_.qk_nope_head_dim; ++n) {
    for (int64_t c = 0; c < spec_.kv_lora_rank; ++c) latent_query[c] += narrow[n] * kv_b.at(first_key + n, c);
  }
  latent_query = Rounded(latent_query);
  Vector scores;
  for (const CachedToken& token : cache) {
    const double score = absorbed ? dot(latent_query, token.latent)
                                  : dot(narrow, Rounded(up(first_key, spec_.qk_nope_head_dim, token.latent)));
    scores.push_back((score + dot(Rounded(rope), token.rotated_key)) * SoftmaxScale());
  }
  const Vector weights = SoftmaxWeights(scores);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  Vector latent(spec_.kv_lora_rank, 0);
  Vector values(spec_.v_head_dim, 0);
  for (size_t t = 0; t < cache.size(); ++t) {
    if (absorbed) {
      for (int64_t c = 0; c < spec_.kv_lora_rank; ++c) latent[c] += weights[t] / sum * cache[t].latent[c];
    } else {
      const Vector value = Rounded(up(first_value, spec_.v_head_dim, cache[t].latent));
      for (int64_t n = 0; n < spec_.v_head_dim; ++n) values[n] += weights[t] / sum * value[n];
    }
  }
  return absorbed ? up(first_value, spec_.v_head_dim, Rounded(latent)) : values;
}

// One of several heads, normalised if the model has head norms, and rotated.
ReferenceModel::Vector ReferenceModel::NormRotated(const std::string& norm, const Vector& x, int64_t head,
                                                   int64_t position) const {
  const auto begin = x.begin() + head * spec_.v_head_dim;
  Vector vector(begin, begin + spec_.v_head_dim);
  if (spec_.heads_without_norms == 0 && spec_.norms_of_all_heads == 0) vector = Norm(norm, vector, spec_.rms_norm_eps);
  if (spec_.rotary_dims == 0) return Rounded(Rotate(vector, position));
  const Vector rotated = Rotate(Vector(vector.begin(), vector.begin() + spec_.rotary_dims), position);
  std::ranges::copy(rotated, vector.begin());
  return Rounded(vector);
}

ReferenceModel::Vector ReferenceModel::GroupedAttention(int64_t layer, int64_t position, const Vector& x,
                                                        std::vector<CachedToken>& cache) const {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
  Vector q = Projected(prefix + "q_proj", x);
  Vector k = Projected(prefix + "k_proj", x);
  if (spec_.norms_of_all_heads != 0) {
    q = Norm(prefix + "q_norm.weight", q, spec_.rms_norm_eps);
    k = Norm(prefix + "k_norm.weight", k, spec_.rms_norm_eps);
  }
  CachedToken token{{}, {}, Rounded(Projected(prefix + "v_proj", x))};
  for (int64_t head = 0; head < spec_.num_kv_heads; ++head) {
    const Vector key = NormRotated(prefix + "k_norm.weight", k, head, position);
    token.rotated_key.insert(token.rotated_key.end(), key.begin(), key.end());
  }
  cache.push_back(std::move(token));
  const int64_t dim = spec_.v_head_dim;
  Vector heads(spec_.num_heads * dim, 0);
  for (int64_t head = 0; head < spec_.num_heads; ++head) {
    const Vector query = NormRotated(prefix + "q_norm.weight", q, head, position);
    const int64_t first = head * spec_.num_kv_heads / spec_.num_heads * dim;
    Vector scores;
    for (const CachedToken& seen : cache) {
      scores.push_back(std::inner_product(query.begin(), query.end(), seen.rotated_key.begin() + first, 0.0) *
                       SoftmaxScale());
    }
    const int64_t window = spec_.WindowOf(layer),
                  hidden = window == 0 ? 0 : std::max<int64_t>(0, position + 1 - window);
    std::fill_n(scores.begin(), hidden, -std::numeric_limits<double>::infinity());
    const Vector weights = SoftmaxWeights(scores);
    double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (spec_.attention_sinks != 0) {
      sum += std::exp(Tensor(prefix + "sinks").values[head] - *std::ranges::max_element(scores));
    }
    for (size_t t = 0; t < cache.size(); ++t) {
      for (int64_t n = 0; n < dim; ++n) heads[head * dim + n] += weights[t] / sum * cache[t].values[first + n];
    }
  }
  return Biased(prefix + "o_proj", heads, spec_.output_bias != 0);
}

ReferenceModel::Vector ReferenceModel::Attention(int64_t layer, int64_t position, const Vector& x,
                                                 std::vector<CachedToken>& cache) const {
  if (spec_.num_kv_heads > 0) return GroupedAttention(layer, position, x, cache);
  const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
  Vector q;
  if (spec_.q_lora_rank == 0) {
    q = Linear(prefix + "q_proj.weight", x);
  } else {
    const Vector q_a =
        Norm(prefix + "q_a_layernorm.weight", Linear(prefix + "q_a_proj.weight", x), spec_.lora_norm_eps);
    q = Linear(prefix + "q_b_proj.weight", q_a);
  }
  const Vector kv = Linear(prefix + "kv_a_proj_with_mqa.weight", x);
  const auto split = kv.begin() + spec_.kv_lora_rank;
  cache.push_back({Rounded(Norm(prefix + "kv_a_layernorm.weight", Vector(kv.begin(), split), spec_.lora_norm_eps)),
                   Rounded(Rotate(Vector(split, kv.end()), position)),
                   {}});
  Vector heads;
  const int64_t width = spec_.qk_nope_head_dim + spec_.qk_rope_head_dim;
  for (int64_t head = 0; head < spec_.num_heads; ++head) {
    const auto begin = q.begin() + head * width;
    const auto middle = begin + spec_.qk_nope_head_dim;
    const Vector values =
        AttendHead(layer, head, Vector(begin, middle), Rotate(Vector(middle, begin + width), position), cache);
    heads.insert(heads.end(), values.begin(), values.end());
  }
  return Linear(prefix + "o_proj.weight", heads);
}

ReferenceModel::Vector ReferenceModel::Mlp(const std::string& prefix, const Vector& x, bool routed) const {
  const bool biased = routed && spec_.expert_biases != 0;
  const double limit = routed ? spec_.swiglu_limit : 0;
  Vector gated = Biased(prefix + "gate_proj", x, biased);
  const Vector up = Biased(prefix + "up_proj", x, biased);
  for (size_t i = 0; i < gated.size(); ++i) {
    if (limit == 0) {
      gated[i] *= Sigmoid(gated[i]) * up[i];
    } else {
      const double gate = std::min(gated[i], limit);
      gated[i] = gate * Sigmoid(spec_.swiglu_alpha * gate) * (std::clamp(up[i], -limit, limit) + 1);
    }
  }
  return Biased(prefix + "down_proj", gated, biased);
}

ReferenceModel::Vector ReferenceModel::FeedForward(int64_t layer, const Vector& x, double* margin) const {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.";
  if (!spec_.IsMoeLayer(layer)) return Mlp(prefix, x);
  const Matrix& gate = Tensor(prefix + "gate.weight");
  Vector logits(spec_.num_experts, 0), scores, biased;
  for (int64_t e = 0; e < spec_.num_experts; ++e) {
    for (int64_t h = 0; h < spec_.hidden_size; ++h) logits[e] += gate.at(e, h) * x[h];
    if (spec_.router_bias != 0) logits[e] += Tensor(prefix + "gate.bias").values[e];
  }
  if (spec_.softmax_router != 0) {
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    for (const double logit : logits) scores.push_back(std::exp(logit) / sum);
    biased = scores;
  } else {
    const Matrix& bias = Tensor(prefix + "gate.e_score_correction_bias");
    for (int64_t e = 0; e < spec_.num_experts; ++e) {
      scores.push_back(Sigmoid(logits[e]));
      biased.push_back(scores.back() + bias.values[e]);
    }
  }
  const int64_t groups = spec_.num_expert_groups;
  const int64_t size = spec_.num_experts / groups;
  Vector group_scores;
  for (int64_t g = 0; g < groups; ++g) {
    Vector group(biased.begin() + g * size, biased.begin() + (g + 1) * size);
    std::sort(group.begin(), group.end(), std::greater<>());
    group_scores.push_back(spec_.largest_of_group != 0 || size == 1 ? group[0] : group[0] + group[1]);
  }
  *margin = std::min(*margin, Margin(group_scores, spec_.experts_topk_groups));
  Vector eligible(biased.size(), -std::numeric_limits<double>::infinity());
  for (const size_t g : Largest(group_scores, spec_.experts_topk_groups)) {
    std::copy_n(biased.begin() + g * size, size, eligible.begin() + g * size);
  }
  *margin = std::min(*margin, Margin(eligible, spec_.experts_per_token));
  const std::vector<size_t> chosen = Largest(eligible, spec_.experts_per_token);
  double sum = 0;
  for (const size_t e : chosen) sum += scores[e];
  Vector y(spec_.hidden_size, 0);
  for (const size_t e : chosen) {
    const double weight = scores[e] / (spec_.norm_topk_prob != 0 ? sum : 1) * spec_.routed_scaling_factor;
    const Vector expert = Mlp(prefix + "experts." + std::to_string(e) + ".", x, /*routed=*/true);
    for (int64_t h = 0; h < spec_.hidden_size; ++h) y[h] += weight * expert[h];
  }
  if (spec_.num_shared_experts == 0) return y;
  double weight = 1;
  if (spec_.shared_expert_gate != 0) {
    const Matrix& shared_gate = Tensor(prefix + "shared_expert_gate.weight");
    weight = Sigmoid(std::inner_product(x.begin(), x.end(), shared_gate.values.begin(), 0.0));
  }
  const Vector shared = Mlp(prefix + "shared_experts.", x);
  for (int64_t h = 0; h < spec_.hidden_size; ++h) y[h] += weight * shared[h];
  return y;
}

ReferenceModel::Result ReferenceModel::Run(std::span<const int32_t> tokens, Rounding rounding) {
  rounding_ = rounding;
  const auto add = [](Vector& sum, const Vector& x) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  };
  const Matrix& embedding = Tensor("model.embed_tokens.weight");
  std::vector<std::vector<CachedToken>> caches(spec_.num_layers);
  Result result;
  for (size_t position = 0; position < tokens.size(); ++position) {
    const auto row = embedding.values.begin() + tokens[position] * spec_.hidden_size;
    Vector h(row, row + spec_.hidden_size);
    double margin = std::numeric_limits<double>::infinity();
    for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      add(h, Attention(layer, static_cast<int64_t>(position), NormResidual(prefix + "input_layernorm.weight", h),
                       caches[layer]));
      add(h, FeedForward(layer, NormResidual(prefix + "post_attention_layernorm.weight", h), &margin));
    }
    result.logits.push_back(Linear("lm_head.weight", NormResidual("model.norm.weight", h)));
    result.router_margin.push_back(margin);
  }
  return result;
}

}  // namespace moestro
