// The router's logic, one function per kind of request. Knows no gRPC. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/router/api_types.h"
#include "services/router/prepare.h"
#include "services/router/request_life.h"
#include "services/router/scoring.h"
#include "services/router/served_model.h"
#include "services/router/types.h"

namespace moestro {

// The replies to one Generate call, in this order. An error (CANCELLED: the client is gone) ends the request.
class GenerateReplies {
 public:
  virtual ~GenerateReplies() = default;
  virtual absl::Status Started(const std::string& request_id, uint32_t prompt_tokens,
                               const AdmissionNotice& notice) = 0;
  virtual absl::Status Prefill(const PrefillProgress& progress) = 0;
  // `text`: what the tokens so far complete. The last reply may have text only.
  virtual absl::Status Tokens(const std::vector<GeneratedToken>& tokens, const std::string& text) = 0;
  virtual absl::Status Finished(const RequestSummary& summary) = 0;
};

class RequestRunner {
 public:
  using RandomBits = std::function<uint64_t()>;  // thread-safe

  // The board and what the environment refers to must outlive the runner. `random`: for request ids and seeds.
  RequestRunner(const ModelBoard& board, const RouterEnvironment& environment, const PrepareLimits& limits,
                RandomBits random);

  absl::Status Generate(const GenerateInput& input, const CallPeers& call, GenerateReplies& replies);
  absl::Status Score(const ScoreInput& input, const CallPeers& call, const Scoring::Sink& scores);

 private:
  absl::Status RunGenerate(const GenerateInput& input, const CallPeers& call, GenerateReplies& replies,
                           const std::string& request_id, RequestSummary& summary);
  absl::Status RunScore(const ScoreInput& input, const CallPeers& call, const Scoring::Sink& scores,
                        const std::string& request_id, RequestSummary& summary);
  std::string NewRequestId();  // 128 random bits, 32 hex digits

  const ModelBoard& board_;
  const RouterEnvironment environment_;
  const PrepareLimits limits_;
  const RandomBits random_;
};

}  // namespace moestro
