// Answers of Ollama's API.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "services/router/http/chat_answer.h"
#include "services/router/http/ollama_request.h"

namespace moestro::router {

// RFC 3339, as Ollama writes times.
std::string OllamaTime(absl::Time time);

// A line of a stream, or a document without what the end adds. Calls have all of their arguments, as ArgumentsObject()
// has them.
OrderedJson OllamaLine(OllamaForm form, const ServedModel& model, const OutputDelta& delta);

// Lines as soon as there is something to tell, a call when it is whole; or one document at the end. The request and the
// response must outlive the answer.
std::unique_ptr<ChatAnswer> NewOllamaAnswer(OllamaForm form, const OllamaRequest& request, ModelBoard::ModelPtr model,
                                            const std::string& id, Response& response);

}  // namespace moestro::router
