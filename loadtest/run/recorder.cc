#include "loadtest/run/recorder.h"

#include <utility>

#include "common/base/check.h"

namespace moestro::loadtest {

int64_t Recorder::Begin(const Request& request, double scheduled, double now) {
  Record record;
  record.group = request.group;
  record.tag = request.tag;
  record.server = request.server;
  record.scheduled = scheduled;
  record.sent = now;
  record.prompt_tokens = static_cast<uint32_t>(request.token_ids.size());  // the server reports a text's
  records_.push_back(std::move(record));
  ++counts_.begun;
  return static_cast<int64_t>(records_.size()) - 1;
}

const Record& Recorder::Apply(const TransportEvent& event) {
  MOE_CHECK(event.request >= 0 && event.request < static_cast<int64_t>(records_.size()));
  Record& record = records_[static_cast<size_t>(event.request)];
  if (const auto* started = std::get_if<Started>(&event.what)) {
    record.started = event.at;
    record.request_id = started->request_id;
    record.prompt_tokens = started->prompt_tokens;
    record.cached_tokens = started->cached_tokens;
    record.path = started->path;
    record.path_reason = started->path_reason;
  } else if (const auto* tokens = std::get_if<Tokens>(&event.what)) {
    if (!tokens->ids.empty()) {
      record.arrivals.push_back({.at = event.at, .tokens = static_cast<uint32_t>(tokens->ids.size())});
      record.tokens.insert(record.tokens.end(), tokens->ids.begin(), tokens->ids.end());
      counts_.tokens += static_cast<int64_t>(tokens->ids.size());
    }
  } else if (const auto* finished = std::get_if<Finished>(&event.what)) {
    record.queue_seconds = finished->queue_seconds;
    record.resumed = finished->resumed;
    record.cached_tokens = finished->cached_tokens;
    if (!finished->path.empty()) record.path = finished->path;
  } else {
    record.status = std::get<End>(event.what).status;
    record.ended = event.at;
    ++(record.completed() ? counts_.completed : record.was_cancelled() ? counts_.cancelled : counts_.failed);
  }
  return record;
}

void Recorder::MarkCancelled(int64_t id, double now) {
  Record& record = records_[static_cast<size_t>(id)];
  if (!record.ended && !record.cancelled) record.cancelled = now;
}

}  // namespace moestro::loadtest
