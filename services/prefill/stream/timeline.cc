#include "services/prefill/stream/timeline.h"

#include <fstream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace moestro::prefill {
namespace {

constexpr const char* kLaneNames[Timeline::kLanes] = {
    "loader: copies", "loader: waits for memory",  "model: kernels", "model: waits for weights", "unloader",
    "exchanges",      "model: waits for exchanges"};

}  // namespace

std::string ChromeTrace(const Timeline& timeline, double begin) {
  const DeviceTimeline device{"", &timeline, begin};
  return ChromeTrace(std::span(&device, 1));
}

std::string ChromeTrace(std::span<const DeviceTimeline> devices) {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator = "\n";
  const auto name_it = [&](const char* what, int64_t pid, int lane, std::string_view name) {
    absl::StrAppendFormat(&json, "%s{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}",
                          separator, pid, lane, what, name);
    separator = ",\n";
  };
  for (int64_t pid = 1; pid <= std::ssize(devices); ++pid) {
    const DeviceTimeline& device = devices[static_cast<size_t>(pid - 1)];
    if (devices.size() > 1) name_it("process_name", pid, 0, device.name);
    for (int lane = 0; lane < Timeline::kLanes; ++lane) {
      if (lane >= Timeline::kExchanges && device.timeline->lanes[lane].empty()) continue;  // of one device
      name_it("thread_name", pid, lane, kLaneNames[lane]);
    }
    for (int lane = 0; lane < Timeline::kLanes; ++lane) {
      for (const Span& span : device.timeline->lanes[lane]) {
        absl::StrAppendFormat(&json,
                              ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,"
                              "\"args\":{\"pass\":%d,\"layer\":%d,\"index\":%d,\"bytes\":%d}}",
                              pid, lane, span.name, (span.begin - device.begin) * 1e6, (span.end - span.begin) * 1e6,
                              span.pass, span.layer, span.index, span.bytes);
      }
    }
  }
  json += "\n]}\n";
  return json;
}

absl::Status WriteChromeTrace(const Timeline& timeline, double begin, const std::string& path) {
  const DeviceTimeline device{"", &timeline, begin};
  return WriteChromeTrace(std::span(&device, 1), path);
}

absl::Status WriteChromeTrace(std::span<const DeviceTimeline> devices, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << ChromeTrace(devices);
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot write the trace file ", path));
}

void StreamCounters::Add(const StreamCounters& run) {
  runs += run.runs;
  passes += run.passes;
  streamed_bytes += run.streamed_bytes;
  staged_bytes += run.staged_bytes;
  pageable_bytes += run.pageable_bytes;
  load_seconds += run.load_seconds;
  slot_wait_seconds += run.slot_wait_seconds;
  compute_seconds += run.compute_seconds;
  stall_seconds += run.stall_seconds;
  wall_seconds += run.wall_seconds;
  ring_slots = run.ring_slots;
  max_ring_occupancy = run.max_ring_occupancy;
  devices = run.devices;
  lost_devices += run.lost_devices;
  repeated_layers += run.repeated_layers;
  link_bytes += run.link_bytes;
  exchange_seconds += run.exchange_seconds;
  exchange_wait_seconds += run.exchange_wait_seconds;
}

}  // namespace moestro::prefill
