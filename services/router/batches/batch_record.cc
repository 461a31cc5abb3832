#include "services/router/batches/batch_record.h"

#include <array>
#include <utility>

namespace moestro::router {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<std::pair<BatchStatus, const char*>, 7> kStatusWords = {{{BatchStatus::kValidating, "validating"},
                                                                              {BatchStatus::kInProgress, "in_progress"},
                                                                              {BatchStatus::kFinalizing, "finalizing"},
                                                                              {BatchStatus::kCompleted, "completed"},
                                                                              {BatchStatus::kFailed, "failed"},
                                                                              {BatchStatus::kCancelling, "cancelling"},
                                                                              {BatchStatus::kCancelled, "cancelled"}}};

// The times of a record, by their names.
constexpr std::array<std::pair<const char*, int64_t BatchRecord::*>, 7> kTimes = {
    {{"created_at", &BatchRecord::created_at},
     {"in_progress_at", &BatchRecord::in_progress_at},
     {"finalizing_at", &BatchRecord::finalizing_at},
     {"completed_at", &BatchRecord::completed_at},
     {"failed_at", &BatchRecord::failed_at},
     {"cancelling_at", &BatchRecord::cancelling_at},
     {"cancelled_at", &BatchRecord::cancelled_at}}};

OrderedJson TextOrNull(bool is_there, const std::string& text) { return is_there ? OrderedJson(text) : OrderedJson(); }

OrderedJson ErrorsToJson(const std::vector<batch::LineError>& errors) {
  if (errors.empty()) return nullptr;
  OrderedJson data = OrderedJson::array();
  for (const batch::LineError& error : errors) {
    data.push_back({{"code", error.code},
                    {"line", error.line == 0 ? OrderedJson() : OrderedJson(error.line)},
                    {"message", error.message},
                    {"param", TextOrNull(!error.param.empty(), error.param)}});
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

// A text field; empty if it is absent or null.
std::string Text(const OrderedJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

template <typename Number>
Number NumberAt(const OrderedJson& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<Number>() : Number{0};
}

}  // namespace

OrderedJson BatchRecord::ToJson() const {
  OrderedJson json = {{"id", id},
                      {"object", "batch"},
                      {"endpoint", endpoint},
                      {"errors", ErrorsToJson(errors)},
                      {"input_file_id", input_file},
                      {"completion_window", "24h"},
                      {"status", nullptr},
                      {"output_file_id", TextOrNull(has_output, output_file)},
                      {"error_file_id", TextOrNull(has_errors, error_file)}};
  for (const auto& [word_status, word] : kStatusWords) {
    if (word_status == status) json["status"] = word;
  }
  for (const auto& [name, time] : kTimes) json[name] = this->*time == 0 ? OrderedJson() : OrderedJson(this->*time);
  json["expires_at"] = nullptr;
  json["expired_at"] = nullptr;
  json["request_counts"] = {{"total", total}, {"completed", completed}, {"failed", failed}};
  json["metadata"] = metadata;
  return json;
}

OrderedJson BatchRecord::ToRecord() const {
  return {{"tenant", tenant}, {"output_file", output_file}, {"error_file", error_file}, {"batch", ToJson()}};
}

BatchRecord BatchRecord::FromRecord(const OrderedJson& record) {
  BatchRecord batch;
  batch.tenant = Text(record, "tenant");
  batch.output_file = Text(record, "output_file");
  batch.error_file = Text(record, "error_file");
  const OrderedJson json = record.value("batch", OrderedJson::object());
  batch.id = Text(json, "id");
  batch.endpoint = Text(json, "endpoint");
  batch.input_file = Text(json, "input_file_id");
  batch.has_output = !Text(json, "output_file_id").empty();
  batch.has_errors = !Text(json, "error_file_id").empty();
  for (const auto& [word_status, word] : kStatusWords) {
    if (Text(json, "status") == word) batch.status = word_status;
  }
  for (const auto& [name, time] : kTimes) batch.*time = NumberAt<int64_t>(json, name);
  const OrderedJson counts = json.value("request_counts", OrderedJson::object());
  batch.total = NumberAt<size_t>(counts, "total");
  batch.completed = NumberAt<size_t>(counts, "completed");
  batch.failed = NumberAt<size_t>(counts, "failed");
  batch.metadata = json.value("metadata", OrderedJson());
  const OrderedJson errors = json.value("errors", OrderedJson());
  if (!errors.is_object()) return batch;
  for (const OrderedJson& error : errors.value("data", OrderedJson::array())) {
    batch.errors.push_back({.line = NumberAt<size_t>(error, "line"),
                            .code = Text(error, "code"),
                            .param = Text(error, "param"),
                            .message = Text(error, "message")});
  }
  return batch;
}

}  // namespace moestro::router
