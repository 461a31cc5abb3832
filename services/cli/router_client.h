// The client side of moestro.v1.Inference. Calls may be cancelled from another thread; otherwise used by one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace moestro {

namespace v1 {
class DetokenizeReply;
class DetokenizeRequest;
class GenerateReply;
class GenerateRequest;
class GetModelReply;
class ScoreReply;
class ScoreRequest;
class TokenizeReply;
class TokenizeRequest;
}  // namespace v1

struct ServerFlags {
  std::string server = "127.0.0.1:50051";
  double timeout_seconds = 0;  // of each call; 0 = none
};
// --server (or MOESTRO_SERVER) and --timeout.
void AddServerFlags(CLI::App& app, ServerFlags& flags);

class RouterClient {
 public:
  explicit RouterClient(const ServerFlags& flags);
  ~RouterClient();

  // Streams: `on_reply` gets every reply as it comes. UNAVAILABLE says what to do when nobody listens.
  absl::Status Generate(const v1::GenerateRequest& request,
                        const std::function<void(const v1::GenerateReply&)>& on_reply);
  absl::Status Score(const v1::ScoreRequest& request, const std::function<void(const v1::ScoreReply&)>& on_reply);
  absl::Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeReply& reply);
  absl::Status Detokenize(const v1::DetokenizeRequest& request, v1::DetokenizeReply& reply);
  absl::Status GetModel(v1::GetModelReply& reply);

  // Ends the running call with CANCELLED; false if none runs. From any thread.
  bool Cancel();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
