// Converts between the wire messages (types.proto) and common/inference/types.h.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/inference/prompt_costs.h"
#include "common/inference/types.h"
#include "moestro/v1/types.pb.h"

namespace moestro {

v1::Constraint ToProto(const Constraint& constraint);
v1::Sampling ToProto(const Sampling& sampling);
v1::KvLease ToProto(const KvLease& lease);
v1::TokenAlternative ToProto(const TokenAlternative& alternative);
v1::Token ToProto(const Token& token);
v1::PositionScore ToProto(const ScoredToken& score);
v1::FinishReason ToProto(FinishReason reason);
v1::PrefillPath ToProto(PrefillPath path);
v1::PrefillProgress ToProto(const PrefillProgress& progress);
v1::PromptWay ToProto(PromptWay way);
v1::CostsResponse ToProto(const std::vector<PromptCost>& costs);

// A kind that this version does not know stays a number that is none of the enumerators.
Constraint FromProto(const v1::Constraint& constraint);
// In no particular order.
std::vector<std::pair<int32_t, float>> FromProto(const google::protobuf::Map<int32_t, float>& logit_bias);
Sampling FromProto(const v1::Sampling& sampling);
// The message lacks cached_tokens.
KvLease FromProto(const v1::KvLease& lease);
TokenAlternative FromProto(const v1::TokenAlternative& alternative);
Token FromProto(const v1::Token& token);
ScoredToken FromProto(const v1::PositionScore& score);
FinishReason FromProto(v1::FinishReason reason);
PrefillProgress FromProto(const v1::PrefillProgress& progress);
std::optional<PromptWay> FromProto(v1::PromptWay way);
// Those that are plausible, the first kMaxPromptCosts of them.
std::vector<PromptCost> FromProto(const v1::CostsResponse& response);

}  // namespace moestro
