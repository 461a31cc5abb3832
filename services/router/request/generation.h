// One generation from admission to its last token. It survives the death of roles and the loss of pages exactly:
// emitted tokens are kept. A new attempt computes prompt and emitted tokens on a newly chosen path, and samples the
// next token under its old index.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/router/request/request_life.h"
#include "services/router/request/types.h"

namespace moestro::router {

// What the client sees. An error (CANCELLED: the client is gone) ends the request.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual absl::Status OnWaiting() { return absl::OkStatus(); }        // in the line for pages; any number of times
  virtual absl::Status OnAdmitted(const AdmissionNotice& notice) = 0;  // once, before anything else
  virtual absl::Status OnPrefill(const PrefillProgress& progress) = 0;
  // False: the answer ends with this token.
  virtual absl::StatusOr<bool> OnToken(const Token& token) = 0;
};

class Generation {
 public:
  // All must outlive this object.
  Generation(const GenerateJob& job, const RouterEnvironment& environment, const CallPeers& call, GenerationSink& sink);

  // Runs to the end; call once.
  absl::Status Run();

  // Valid after Run, also when it failed.
  RequestSummary Summary() const;

 private:
  absl::Status Attempt();
  absl::StatusOr<PathPolicy::Decision> ChoosePath();
  absl::Status Announce(const PathChoice& choice);
  absl::Status Prefill(PathPolicy::Work& work);
  absl::Status StartDecode();
  absl::Status PromptDecode();
  absl::Status FollowDecode(PathPolicy::Work& work);
  absl::Status OnProgress(const PrefillProgress& progress);
  absl::Status Emit(const Token& token);
  // Decode has given the attempt a place.
  void NotePlace(PathPolicy::Work& work);
  // The prompt of the attempt is done.
  void NotePrompt(PathPolicy::Work& work);
  void NoteFirstToken();

  uint32_t emitted() const { return static_cast<uint32_t>(tokens_.size() - job_.prompt.size()); }

  const GenerateJob& job_;
  const RouterEnvironment environment_;
  PrefillPeer& prefill_;
  GenerationSink& sink_;
  RequestLife life_;
  std::vector<int32_t> tokens_;  // the prompt, then the emitted tokens
  Token last_;                   // the last emitted token
  std::optional<FinishReason> reason_;
  bool announced_ = false;
  uint32_t cached_tokens_ = 0;
  PrefillPath path_ = PrefillPath::kChunked;
  bool fp8_activations_ = false;
  std::optional<double> predicted_seconds_;    // of the prompt's first attempt
  double place_seconds_ = 0;                   // that attempts waited for one before the first token
  std::optional<double> first_token_seconds_;  // since arrival
  double last_token_seconds_ = 0;              // the same of the last token
};

}  // namespace moestro::router
