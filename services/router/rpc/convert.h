// Between the messages of the wire and the router's own types.
#pragma once

#include <vector>

#include "moestro/v1/inference.pb.h"
#include "moestro/v1/types.pb.h"
#include "services/router/types.h"

namespace moestro {

v1::Sampling ToProto(const Sampling& sampling);
v1::KvLease ToProto(const PageLease& lease);
v1::Token ToProto(const GeneratedToken& token);
v1::PositionScore ToProto(const ScoredPosition& score);
v1::FinishReason ToProto(FinishReason reason);
v1::PrefillPath ToProto(PrefillPath path);
v1::PrefillProgress ToProto(const PrefillProgress& progress);

PageLease FromProto(const v1::KvLease& lease);
GeneratedToken FromProto(const v1::Token& token);
ScoredPosition FromProto(const v1::PositionScore& score);
FinishReason FromProto(v1::FinishReason reason);
PrefillProgress FromProto(const v1::PrefillProgress& progress);

}  // namespace moestro
