// The router's logic, one function per kind of request. Knows no gRPC. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status.h"
#include "common/base/work_lane.h"
#include "services/router/request/api_types.h"
#include "services/router/request/prepare.h"
#include "services/router/request/request_life.h"
#include "services/router/request/running_requests.h"
#include "services/router/request/scoring.h"
#include "services/router/request/types.h"
#include "services/router/text/constraint_check.h"
#include "services/router/text/served_model.h"
#include "services/router/text/text_turns.h"

namespace moestro::router {

// The replies to one Generate call, in this order. An error (CANCELLED: the client is gone) ends the request.
class GenerateReplies {
 public:
  virtual ~GenerateReplies() = default;
  // Once, before all others: the request is read, and its answer has at most `max_tokens`. That is less than it asked
  // for where the context, or what its key may have, has no room for more.
  virtual void Bounded(uint32_t /*max_tokens*/) {}
  // Others are before this request: it waits in the line for pages. Any number of times; not at all if it need not
  // wait.
  virtual absl::Status Waiting() { return absl::OkStatus(); }
  virtual absl::Status Started(const std::string& request_id, uint32_t prompt_tokens,
                               const AdmissionNotice& notice) = 0;
  virtual absl::Status Prefill(const PrefillProgress& progress) = 0;
  // `text`: what the tokens so far complete. The last reply may consist of text only.
  virtual absl::Status Tokens(const std::vector<Token>& tokens, const std::string& text) = 0;
  virtual absl::Status Finished(const RequestSummary& summary) = 0;
};

class RequestRunner {
 public:
  using RandomBits = std::function<uint64_t()>;  // thread-safe

  // The board and what the environment refers to must outlive the runner. `random`: for request ids and seeds.
  RequestRunner(const ModelBoard& board, const RouterEnvironment& environment, const PrepareLimits& limits,
                RandomBits random);

  // Reads the client's input once the model is known, in a turn at work on texts (text_turns.h).
  template <typename Input>
  using Read = absl::FunctionRef<absl::StatusOr<Input>(const ServedModel&)>;

  absl::Status Generate(Read<GenerateInput> read, const CallPeers& call, GenerateReplies& replies);
  absl::Status Score(Read<ScoreInput> read, const CallPeers& call, const Scoring::Sink& scores);
  // Ends a generation: its client gets CANCELLED. NOT_FOUND if none of this name runs.
  absl::Status Abort(const Tenant& tenant, const std::string& request_id) {
    return running_.Abort(tenant.name(), request_id);
  }

  uint32_t default_max_tokens(const ServedModel& model) const { return DefaultMaxTokens(model, limits_); }
  bool IsUp(Role role) const { return environment_.roles.IsUp(role); }

  // For fronts that read a request before they know what it wants. Where a constraint in it takes long, reads it a
  // second time outside of the turn. `bytes`: of the request, here and below.
  template <typename Input>
  absl::StatusOr<Input> ReadInTurn(absl::FunctionRef<absl::StatusOr<Input>(const ServedModel&, ConstraintCheck&)> read,
                                   size_t bytes, const CancelCheck& check) {
    MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, board_.Described());
    ConstraintCheck quick = ConstraintCheck::Quick(known_constraints_);
    absl::StatusOr<Input> input = InTurn(bytes, check, [&] { return read(*model, quick); });
    if (!quick.is_interrupted()) return input;
    ConstraintCheck whole = ConstraintCheck::Whole(known_constraints_, check);
    const auto read_again = [&] {
      input = read(*model, whole);
      return input.status();
    };
    MOE_RETURN_IF_ERROR(background_.Run(read_again, check));
    return input;
  }

  std::string NewRequestId();  // 128 random bits, 32 hex digits

  struct Tokens {
    ModelBoard::ModelPtr model;  // whose ids they are
    std::vector<int32_t> ids;
  };
  absl::StatusOr<Tokens> Tokenize(Read<TokenizeInput> read, size_t bytes, const CancelCheck& check);
  absl::StatusOr<std::string> Detokenize(Read<DetokenizeInput> read, size_t bytes, const CancelCheck& check);

 private:
  // All but the last reply. `request_id` becomes the client's own if it has set one.
  absl::Status RunGenerate(Read<GenerateInput> read, const CallPeers& call, GenerateReplies& replies,
                           std::string& request_id, RequestSummary& summary);
  absl::Status RunScore(Read<ScoreInput> read, const CallPeers& call, const Scoring::Sink& scores,
                        const std::string& request_id, RequestSummary& summary);
  PrepareLimits LimitsOf(const Tenant& tenant) const;
  template <typename Work>
  auto InTurn(size_t bytes, const CancelCheck& check, Work work) -> decltype(work()) {
    MOE_ASSIGN_OR_RETURN(const TextTurns::Turn turn, text_turns_.Take(bytes, check));
    return work();
  }

  const ModelBoard& board_;
  const RouterEnvironment environment_;
  const PrepareLimits limits_;
  const RandomBits random_;
  TextTurns text_turns_;
  KnownConstraints known_constraints_;
  WorkLane background_{WorkLane::kBackground};  // for constraints that take long
  RunningRequests running_;
};

}  // namespace moestro::router
