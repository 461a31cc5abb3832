// Requests of Ollama's API, /api/chat and /api/generate, as the chats and completions that the other APIs run.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/router/http/chat_request.h"

namespace moestro::router {

// A text instead of messages (/api/generate), or messages (/api/chat).
enum class OllamaForm { kGenerate, kChat };

// A request as /v1/chat/completions would have it.
struct OllamaBody {
  std::string model;        // as the client wrote it
  std::string chat = {};    // a body: all but the model's name; keys in the order of the client
  std::string prompt = {};  // with `raw`: the text that goes on, instead of the messages
  bool raw = false;
  bool stream = true;
  bool loads_only = false;  // nothing to answer: the client only wants the model in memory
};

// INVALID_ARGUMENT and UNIMPLEMENTED name the field. `max_values`: as ParseJsonObject.
absl::StatusOr<OllamaBody> TranslateOllama(OllamaForm form, std::string_view body, size_t max_values);

// CheckModelName of a name that may have Ollama's tag, "NAME:latest".
absl::Status CheckOllamaName(std::string_view name, const ServedModel& model);

struct OllamaRequest {
  ChatRequest chat;
  bool stream = true;
  bool loads_only = false;
};

// NOT_FOUND: another model. Else as TranslateOllama and ReadChatRequest.
absl::StatusOr<OllamaRequest> ReadOllamaRequest(OllamaForm form, std::string_view body, const ServedModel& model,
                                                ConstraintCheck& constraints, const CancelCheck& check);

}  // namespace moestro::router
