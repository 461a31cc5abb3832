#include "services/router/http/message_batch.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/batch/request_file.h"
#include "common/text/concat.h"
#include "common/text/json/raw_field.h"
#include "services/router/http/frames.h"
#include "services/router/output/object_text.h"

namespace moestro::router {
namespace {

using text::Concat;

constexpr std::string_view kPrefix = "msg";

OrderedJson Time(int64_t seconds) {
  if (seconds == 0) return nullptr;
  return absl::FormatTime(absl::RFC3339_sec, absl::FromUnixSeconds(seconds), absl::UTCTimeZone());
}

const char* StatusWord(const BatchRecord& batch) {
  if (batch.finished()) return "ended";
  return batch.status == BatchStatus::kCancelling ? "canceling" : "in_progress";
}

// All requests are in progress until the batch has ended.
OrderedJson Counts(const BatchRecord& batch) {
  const bool ended = batch.finished();
  const size_t rest = batch.total - batch.completed - batch.failed;
  const bool cancelled = batch.status == BatchStatus::kCancelled;
  return {{"processing", ended ? 0 : batch.total},
          {"succeeded", ended ? batch.completed : 0},
          {"errored", ended ? batch.failed + (cancelled ? 0 : rest) : 0},
          {"canceled", cancelled ? rest : 0},
          {"expired", 0}};
}

// The line of a file for one of the requests. A line has no line ends: JSON has them between its tokens only.
std::string LineOf(std::string_view request) {
  std::string line =
      Concat("{\"custom_id\": ", text::RawField(request, "custom_id"), ", \"method\": \"POST\", \"url\": \"",
             kMessagesUrl, "\", \"body\": ", text::RawField(request, "params"), "}");
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

// `field` is empty, or what a line calls what is wrong: "custom_id", "body.stream".
absl::Status Wrong(size_t index, std::string field, std::string_view message) {
  if (message.starts_with(field + ": ")) message.remove_prefix(field.size() + 2);
  if (field.starts_with("body")) field.replace(0, 4, "params");
  return absl::InvalidArgumentError(Concat("requests[", index, "]", field.empty() ? "" : ".", field, ": ", message));
}

std::string ErrorResult(const std::string& message) {
  return Dump(
      {{"type", "errored"}, {"error", {{"type", "error"}, {"error", {{"type", "api_error"}, {"message", message}}}}}});
}

std::string ResultLine(std::string_view custom_id, std::string_view result) {
  return Concat("{\"custom_id\": ", custom_id, ", \"result\": ", result, "}");
}

}  // namespace

std::string MessageBatchId(const std::string& batch_id) { return Concat(kPrefix, batch_id); }

std::string BatchIdOf(const std::string& message_batch_id) {
  return message_batch_id.starts_with(kPrefix) ? message_batch_id.substr(kPrefix.size()) : message_batch_id;
}

absl::StatusOr<MessageRequests> ReadMessageRequests(std::string_view body, size_t most) {
  // As a whole it is not parsed, which would take many times its memory.
  if (!IsJson(body)) return absl::InvalidArgumentError("the body is not JSON");
  const std::vector<std::string_view> requests = text::RawElements(text::RawField(body, "requests"));
  if (requests.empty() || requests.size() > most) {
    return absl::InvalidArgumentError(Concat("requests: must be a list of 1 to ", most, " requests"));
  }
  MessageRequests read{.count = requests.size()};
  std::unordered_set<std::string> ids;
  for (size_t index = 0; index < requests.size(); ++index) {
    for (const char* key : {"custom_id", "params"}) {
      if (text::RawField(requests[index], key).empty()) return Wrong(index, key, "is missing");
    }
    const std::string line = LineOf(requests[index]);
    batch::Request request;
    batch::LineError error;
    if (!batch::ParseRequest(line, request, error)) return Wrong(index, error.param, error.message);
    if (!ids.insert(std::move(request.custom_id)).second) return Wrong(index, "custom_id", "another request has it");
    (read.file += line) += '\n';
  }
  return read;
}

std::string CustomIdOf(std::string_view line) {
  const OrderedJson id = OrderedJson::parse(text::RawField(line, "custom_id"), nullptr, /*allow_exceptions=*/false);
  return id.is_string() ? id.get<std::string>() : std::string();
}

OrderedJson MessageBatchJson(const BatchRecord& batch) {
  const std::string id = MessageBatchId(batch.id);
  return {
      {"id", id},
      {"type", "message_batch"},
      {"processing_status", StatusWord(batch)},
      {"request_counts", Counts(batch)},
      {"created_at", Time(batch.created_at)},
      {"ended_at", Time(std::max({batch.completed_at, batch.failed_at, batch.cancelled_at}))},
      // Never; but clients want a time.
      {"expires_at", "9999-12-31T23:59:59Z"},
      {"cancel_initiated_at", Time(batch.cancelling_at)},
      {"archived_at", nullptr},
      // A path is right behind every proxy.
      {"results_url", batch.finished() ? OrderedJson(Concat("/v1/messages/batches/", id, "/results")) : OrderedJson()}};
}

std::string MessageResult(std::string_view line) {
  const std::string_view custom_id = text::RawField(line, "custom_id");
  const std::string_view response = text::RawField(line, "response");
  if (!response.starts_with('{')) {
    const OrderedJson error = OrderedJson::parse(text::RawField(line, "error"), nullptr, /*allow_exceptions=*/false);
    return ResultLine(custom_id, ErrorResult(error.is_object() ? error.value("message", "") : ""));
  }
  const bool succeeded = text::RawField(response, "status_code").starts_with('2');
  return ResultLine(
      custom_id, Concat(succeeded ? "{\"type\": \"succeeded\", \"message\": " : "{\"type\": \"errored\", \"error\": ",
                        text::RawField(response, "body"), "}"));
}

std::string MessageResultWithout(const BatchRecord& batch, const std::string& custom_id) {
  const std::string id = Dump(custom_id);
  if (batch.status == BatchStatus::kCancelled) return ResultLine(id, "{\"type\": \"canceled\"}");
  return ResultLine(id, ErrorResult(batch.errors.empty() ? "the batch failed" : batch.errors.front().message));
}

}  // namespace moestro::router
