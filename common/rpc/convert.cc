#include "common/rpc/convert.h"

namespace moestro {

v1::Constraint ToProto(const Constraint& constraint) {
  v1::Constraint proto;
  proto.set_kind(static_cast<v1::Constraint::Kind>(constraint.kind));
  proto.set_text(constraint.text);
  return proto;
}

v1::Sampling ToProto(const Sampling& sampling) {
  v1::Sampling proto;
  proto.set_temperature(sampling.temperature);
  proto.set_top_p(sampling.top_p);
  proto.set_top_k(sampling.top_k);
  proto.set_seed(sampling.seed);
  proto.set_min_p(sampling.min_p);
  proto.set_presence_penalty(sampling.presence_penalty);
  proto.set_frequency_penalty(sampling.frequency_penalty);
  proto.set_repetition_penalty(sampling.repetition_penalty);
  for (const auto& [id, bias] : sampling.logit_bias) (*proto.mutable_logit_bias())[id] = bias;
  proto.set_top_logprobs(sampling.top_logprobs);
  if (sampling.constraint.kind != Constraint::Kind::kNone) {
    *proto.mutable_constraint() = ToProto(sampling.constraint);
  }
  return proto;
}

v1::KvLease ToProto(const KvLease& lease) {
  v1::KvLease proto;
  proto.set_pool(lease.pool);
  proto.set_slot(lease.slot);
  proto.set_id(lease.id);
  proto.mutable_pages()->Add(lease.pages.begin(), lease.pages.end());
  return proto;
}

v1::TokenAlternative ToProto(const TokenAlternative& alternative) {
  v1::TokenAlternative proto;
  proto.set_id(alternative.id);
  proto.set_logprob(alternative.logprob);
  return proto;
}

v1::Token ToProto(const Token& token) {
  v1::Token proto;
  proto.set_id(token.id);
  proto.set_logprob(token.logprob);
  for (const TokenAlternative& alternative : token.top) *proto.add_top() = ToProto(alternative);
  return proto;
}

v1::PositionScore ToProto(const ScoredToken& score) {
  v1::PositionScore proto;
  proto.set_id(score.id);
  if (score.logprob) proto.set_logprob(*score.logprob);
  for (const TokenAlternative& alternative : score.top) *proto.add_top() = ToProto(alternative);
  return proto;
}

v1::FinishReason ToProto(FinishReason reason) {
  return reason == FinishReason::kStop ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH;
}

v1::PrefillPath ToProto(PrefillPath path) {
  if (path == PrefillPath::kChunked) return v1::PREFILL_PATH_CHUNKED;
  return path == PrefillPath::kSplit ? v1::PREFILL_PATH_SPLIT : v1::PREFILL_PATH_WHOLE_MACHINE;
}

v1::PrefillProgress ToProto(const PrefillProgress& progress) {
  v1::PrefillProgress proto;
  proto.set_done_tokens(progress.done_tokens);
  proto.set_total_tokens(progress.total_tokens);
  return proto;
}

// The enumerators have the same numbers.
Constraint FromProto(const v1::Constraint& constraint) {
  return {.kind = static_cast<Constraint::Kind>(constraint.kind()), .text = constraint.text()};
}

std::vector<std::pair<int32_t, float>> FromProto(const google::protobuf::Map<int32_t, float>& logit_bias) {
  return {logit_bias.begin(), logit_bias.end()};
}

Sampling FromProto(const v1::Sampling& sampling) {
  return {.temperature = sampling.temperature(),
          .top_p = sampling.top_p() == 0 ? 1.0f : sampling.top_p(),
          .top_k = sampling.top_k(),
          .seed = sampling.seed(),
          .min_p = sampling.min_p(),
          .presence_penalty = sampling.presence_penalty(),
          .frequency_penalty = sampling.frequency_penalty(),
          .repetition_penalty = sampling.repetition_penalty() == 0 ? 1.0f : sampling.repetition_penalty(),
          .logit_bias = FromProto(sampling.logit_bias()),
          .top_logprobs = sampling.top_logprobs(),
          .constraint = FromProto(sampling.constraint())};
}

KvLease FromProto(const v1::KvLease& lease) {
  return {.pool = lease.pool(),
          .slot = lease.slot(),
          .id = lease.id(),
          .pages = {lease.pages().begin(), lease.pages().end()}};
}

TokenAlternative FromProto(const v1::TokenAlternative& alternative) {
  return {.id = alternative.id(), .logprob = alternative.logprob()};
}

Token FromProto(const v1::Token& token) {
  Token result{.id = token.id(), .logprob = token.logprob()};
  for (const v1::TokenAlternative& alternative : token.top()) result.top.push_back(FromProto(alternative));
  return result;
}

ScoredToken FromProto(const v1::PositionScore& score) {
  ScoredToken result{.id = score.id(), .logprob = std::nullopt, .top = {}};
  if (score.has_logprob()) result.logprob = score.logprob();
  for (const v1::TokenAlternative& alternative : score.top()) result.top.push_back(FromProto(alternative));
  return result;
}

FinishReason FromProto(v1::FinishReason reason) {
  return reason == v1::FINISH_REASON_STOP ? FinishReason::kStop : FinishReason::kLength;
}

PrefillProgress FromProto(const v1::PrefillProgress& progress) {
  return {.done_tokens = progress.done_tokens(), .total_tokens = progress.total_tokens()};
}

v1::PromptWay ToProto(PromptWay way) {
  if (way == PromptWay::kChunked) return v1::PROMPT_WAY_CHUNKED;
  return way == PromptWay::kInPlace ? v1::PROMPT_WAY_IN_PLACE : v1::PROMPT_WAY_STREAMED;
}

std::optional<PromptWay> FromProto(v1::PromptWay way) {
  for (const PromptWay known : kPromptWays) {
    if (ToProto(known) == way) return known;
  }
  return std::nullopt;
}

v1::CostsResponse ToProto(const std::vector<PromptCost>& costs) {
  v1::CostsResponse response;
  for (const PromptCost& cost : costs) {
    v1::PromptCost& proto = *response.add_costs();
    proto.set_way(ToProto(cost.way));
    proto.set_alone(cost.alone);
    proto.set_decoding(cost.decoding);
    for (const PromptCost::Point& point : cost.points) {
      proto.add_tokens(point.tokens);
      proto.add_seconds(point.seconds);
      proto.add_slack_seconds(point.slack);
    }
    proto.set_seconds_per_pair(cost.seconds_per_pair);
  }
  return response;
}

std::vector<PromptCost> FromProto(const v1::CostsResponse& response) {
  std::vector<PromptCost> costs;
  for (const v1::PromptCost& proto : response.costs()) {
    const std::optional<PromptWay> way = FromProto(proto.way());
    const int points = proto.tokens_size();
    if (!way || proto.seconds_size() != points || proto.slack_seconds_size() != points) continue;
    PromptCost cost{.way = *way, .alone = proto.alone(), .decoding = proto.decoding()};
    for (int i = 0; i < points; ++i) cost.points.push_back({proto.tokens(i), proto.seconds(i), proto.slack_seconds(i)});
    cost.seconds_per_pair = proto.seconds_per_pair();
    if (IsPlausible(cost) && costs.size() < kMaxPromptCosts) costs.push_back(std::move(cost));
  }
  return costs;
}

}  // namespace moestro
