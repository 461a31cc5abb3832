// A conversation that a client wants to go on, whichever API it speaks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/router/http/api.h"
#include "services/router/http/chat_fields.h"
#include "services/router/http/request_fields.h"
#include "services/router/output/output_parser.h"
#include "services/router/request/api_types.h"
#include "services/router/request/prepare.h"
#include "services/router/text/constraint_check.h"
#include "services/router/text/served_model.h"

namespace moestro::router {

// What a client calls a tool that the model knows as a function, by the model's name for it.
struct ToolOrigin {
  std::string space = {};  // its namespace; empty: none
  std::string name;
  bool is_custom = false;  // its one argument is a text, and the client knows of no JSON
};
using ToolOrigins = std::map<std::string, ToolOrigin>;

struct ChatRequest {
  std::string model;
  std::vector<GenerateInput> choices;  // the prompt is tokenized
  StreamFields stream;
  bool logprobs = false;
  std::string tools = {};  // JSON text of those that the model may call; empty: none
  ToolOrigins origins = {};
  bool shows_reasoning = true;
  bool several_calls = true;      // false: the client gets the first only
  bool as_function_call = false;  // the answer has a call in the form before tools
  bool lost_tags = true;          // calls count without their tags: no grammar binds them
  bool reasoning_open = false;    // the prompt ends where the model reasons
  bool continues = false;         // the last message, of the assistant, is the beginning of the answer
  // Fields that an answer repeats, as they were written.
  nlohmann::ordered_json echo = nlohmann::ordered_json::object();
};

// Tokenizes the chat, for an answer that `request.continues` or not, and makes `choices` of `input`, whose constraint
// becomes that of what follows the reasoning, or that of a call if `choice` forces one. Errors as EncodeChat,
// ConstraintCheck and ConstrainToCalls.
absl::Status SetPrompt(const text::Chat& chat, const ToolChoice& choice, GenerateInput input, size_t choices,
                       const ServedModel& model, ConstraintCheck& constraints, const CancelCheck& check,
                       ChatRequest& request);

// POST /v1/chat/completions.
absl::StatusOr<ChatRequest> ReadChatRequest(std::string_view body, const ServedModel& model,
                                            ConstraintCheck& constraints, const CancelCheck& check);

// How many tokens the prompt of a chat has, whether it fits the context or not: clients shorten it by this number.
// `read`: makes the chat of a request's body.
absl::StatusOr<size_t> CountPrompt(
    const HttpApi& api, HttpRequest& http, const ClientCall& call,
    absl::FunctionRef<absl::StatusOr<text::Chat>(const nlohmann::json&, std::string_view)> read);

// Splits what the model writes. `id_seed`: of the ids of calls; another one for each answer. Both must outlive it.
std::unique_ptr<OutputParser> NewOutputParser(const ChatRequest& request, const ServedModel& model, uint64_t id_seed);

}  // namespace moestro::router
