// Answers of chat completions.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/router/http/chat_request.h"
#include "services/router/http/choices.h"
#include "services/router/http/frames.h"
#include "services/router/http/response.h"
#include "services/router/output/output_parser.h"
#include "services/router/text/served_model.h"

namespace moestro::router {

// Splits what the choices write, and counts. Streams and documents differ in what they make of it.
class ChatAnswer : public Answer {
 public:
  // `id`: of the answer. The request and the response must outlive the answer.
  ChatAnswer(const ChatRequest& request, ModelBoard::ModelPtr model, const std::string& id, Response& response);

  absl::Status Started(size_t choice, uint32_t prompt_tokens, const AdmissionNotice& notice) override;
  absl::Status Tokens(size_t choice, const std::vector<Token>& tokens, const std::string& text) override;
  absl::Status Finished(size_t choice, const RequestSummary& summary) override;

  // All choices have ended.
  virtual absl::Status Finish() = 0;

 protected:
  virtual absl::Status Add(size_t choice, const OutputDelta& delta, const std::vector<Token>& tokens) = 0;
  virtual absl::Status End(size_t choice, const std::string& reason, const RequestSummary& summary) = 0;

  // What frames and documents begin with.
  OrderedJson Envelope(const char* object) const;

  const ChatRequest& request_;
  const ModelBoard::ModelPtr model_;
  Response& response_;
  UsageSum usage_;

 private:
  struct Choice {
    std::unique_ptr<OutputParser> parser;
    bool reasons = false;  // has not written anything but reasoning
  };
  absl::Status AddShown(size_t choice, OutputDelta delta, const std::vector<Token>& tokens);

  const std::string id_;
  const int64_t created_ = UnixSeconds();
  std::vector<Choice> choices_;
  bool counted_ = false;
};

// Frames, as soon as there is something to tell; comments as BeginSse.
std::unique_ptr<ChatAnswer> NewChatStream(const ChatRequest& request, ModelBoard::ModelPtr model, const std::string& id,
                                          std::chrono::seconds keep_alive, Response& response);
// One document at the end.
std::unique_ptr<ChatAnswer> NewChatDocument(const ChatRequest& request, ModelBoard::ModelPtr model,
                                            const std::string& id, Response& response);

}  // namespace moestro::router
