// Batches in the words of Anthropic's API. Underneath they are batches of /v1/messages, with files in OpenAI's format.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/router/batches/batch_record.h"

namespace moestro::router {

inline constexpr char kMessagesUrl[] = "/v1/messages";

// "msgbatch_..." of "batch_...", and back. Of another text: the text, which names no batch.
std::string MessageBatchId(const std::string& batch_id);
std::string BatchIdOf(const std::string& message_batch_id);

struct MessageRequests {
  std::string file = {};  // a line for each request
  size_t count = 0;
};
// Of the body {"requests": [{"custom_id", "params"}]}. INVALID_ARGUMENT: there are none or more than `most`, or one is
// wrong, such as by a custom_id that another one has; the message names the field. What is in `params` is not looked
// at: the request of the batch gets that error.
absl::StatusOr<MessageRequests> ReadMessageRequests(std::string_view body, size_t most);

// Of a line of a file of requests or results.
std::string CustomIdOf(std::string_view line);

nlohmann::ordered_json MessageBatchJson(const BatchRecord& batch);

// A line of results, {"custom_id", "result"}, of a line of a batch's output or errors, which has an answer or says why
// there is none.
std::string MessageResult(std::string_view line);
// The same of a request of the batch that has no answer.
std::string MessageResultWithout(const BatchRecord& batch, const std::string& custom_id);

}  // namespace moestro::router
