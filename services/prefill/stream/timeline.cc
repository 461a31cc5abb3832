#include "services/prefill/stream/timeline.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace moestro {
namespace {

constexpr const char* kLaneNames[Timeline::kLanes] = {"loader: copies", "loader: waits for memory", "model: kernels",
                                                      "model: waits for weights", "unloader"};

}  // namespace

std::string ChromeTrace(const Timeline& timeline, double begin) {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (int lane = 0; lane < Timeline::kLanes; ++lane) {
    absl::StrAppendFormat(&json,
                          "%s{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
                          lane == 0 ? "" : ",\n", lane, kLaneNames[lane]);
  }
  for (int lane = 0; lane < Timeline::kLanes; ++lane) {
    for (const Span& span : timeline.lanes[lane]) {
      absl::StrAppendFormat(&json,
                            ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
                            "\"pass\":%d,\"layer\":%d,\"index\":%d,\"bytes\":%d}}",
                            lane, span.name, (span.begin - begin) * 1e6, (span.end - span.begin) * 1e6, span.pass,
                            span.layer, span.index, span.bytes);
    }
  }
  json += "\n]}\n";
  return json;
}

absl::Status WriteChromeTrace(const Timeline& timeline, double begin, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << ChromeTrace(timeline, begin);
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot write the trace file ", path));
}

void StreamCounters::Add(const StreamCounters& run) {
  runs += run.runs;
  passes += run.passes;
  streamed_bytes += run.streamed_bytes;
  load_seconds += run.load_seconds;
  slot_wait_seconds += run.slot_wait_seconds;
  compute_seconds += run.compute_seconds;
  stall_seconds += run.stall_seconds;
  wall_seconds += run.wall_seconds;
  ring_slots = run.ring_slots;
  max_ring_occupancy = run.max_ring_occupancy;
}

}  // namespace moestro
