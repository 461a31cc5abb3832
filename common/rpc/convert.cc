#include "common/rpc/convert.h"

namespace moestro {

v1::Sampling ToProto(const Sampling& sampling) {
  v1::Sampling proto;
  proto.set_temperature(sampling.temperature);
  proto.set_top_p(sampling.top_p);
  proto.set_top_k(sampling.top_k);
  proto.set_seed(sampling.seed);
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

v1::Token ToProto(const Token& token) {
  v1::Token proto;
  proto.set_id(token.id);
  proto.set_logprob(token.logprob);
  return proto;
}

v1::PositionScore ToProto(const ScoredToken& score) {
  v1::PositionScore proto;
  proto.set_id(score.id);
  if (score.logprob) proto.set_logprob(*score.logprob);
  for (const Token& token : score.top) *proto.add_top() = ToProto(token);
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

Sampling FromProto(const v1::Sampling& sampling) {
  return {.temperature = sampling.temperature(),
          .top_p = sampling.top_p() == 0 ? 1.0f : sampling.top_p(),
          .top_k = sampling.top_k(),
          .seed = sampling.seed()};
}

KvLease FromProto(const v1::KvLease& lease) {
  return {.pool = lease.pool(),
          .slot = lease.slot(),
          .id = lease.id(),
          .pages = {lease.pages().begin(), lease.pages().end()}};
}

Token FromProto(const v1::Token& token) { return {.id = token.id(), .logprob = token.logprob()}; }

ScoredToken FromProto(const v1::PositionScore& score) {
  ScoredToken result{.id = score.id(), .logprob = std::nullopt, .top = {}};
  if (score.has_logprob()) result.logprob = score.logprob();
  for (const v1::Token& token : score.top()) result.top.push_back(FromProto(token));
  return result;
}

FinishReason FromProto(v1::FinishReason reason) {
  return reason == v1::FINISH_REASON_STOP ? FinishReason::kStop : FinishReason::kLength;
}

PrefillProgress FromProto(const v1::PrefillProgress& progress) {
  return {.done_tokens = progress.done_tokens(), .total_tokens = progress.total_tokens()};
}

}  // namespace moestro
