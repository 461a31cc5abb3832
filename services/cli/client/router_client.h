// The client side of moestro.v1.InferenceService. Used by one thread, but any thread may cancel a call.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/process/server_options.h"
#include "services/cli/client/credentials.h"

namespace moestro {
class FlagSet;
}  // namespace moestro

namespace moestro::v1 {
class DetokenizeResponse;
class DetokenizeRequest;
class GenerateResponse;
class GenerateRequest;
class GetModelResponse;
class ScoreResponse;
class ScoreRequest;
class TokenizeResponse;
class TokenizeRequest;
}  // namespace moestro::v1

namespace moestro::cli {

struct ServerFlags {
  ServerOptions router;
  double timeout_seconds = 0;  // of each call; 0 = none
  CredentialFlags credentials;
};
// Those of the server (server_options.h), --timeout, and those of the credentials.
void AddServerFlags(FlagSet& command, ServerFlags& flags);

class RouterClient {
 public:
  explicit RouterClient(const ServerFlags& flags);
  ~RouterClient();

  // Streaming calls: `on_reply` gets every reply as it arrives. UNAVAILABLE includes a remedy if the router is
  // unreachable. The errors of all calls: NOT_FOUND names a file of the flags that cannot be read.
  absl::Status Generate(const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateResponse&)>& on_reply);
  absl::Status Score(const v1::ScoreRequest& request, const std::function<void(const v1::ScoreResponse&)>& on_reply);
  absl::Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse& reply);
  absl::Status Detokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse& reply);
  absl::Status GetModel(v1::GetModelResponse& reply);

  // Ends the running call with CANCELLED; false if none is running. Callable from any thread.
  bool Cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::cli
