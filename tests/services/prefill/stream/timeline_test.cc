#include "services/prefill/stream/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/services/prefill/stream/stream_fixture.h"

namespace moestro::prefill {
namespace {

TEST(Timeline, IsATraceWithAThreadForEachLane) {
  Timeline timeline;
  timeline.lanes[Timeline::kLoads].push_back({"expert", 0, 3, 7, 4096, 10.5, 10.75});
  const auto trace = nlohmann::json::parse(ChromeTrace(timeline, 10));
  const auto& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].at("args").at("name"), "loader: copies");
  EXPECT_EQ(events[5].at("name"), "expert");
  EXPECT_EQ(events[5].at("ts"), 5e5);
  EXPECT_EQ(events[5].at("dur"), 2.5e5);
  EXPECT_EQ(events[5].at("args").at("bytes"), 4096);
  EXPECT_TRUE(absl::IsInvalidArgument(WriteChromeTrace(timeline, 10, "/no/such/folder/trace.json")));
}

using StreamTimelineTest = StreamTest;

TEST_F(StreamTimelineTest, ARunAccountsForEveryModuleAndStep) {
  const Setting setting{.limits = {.dense_bytes = 1 << 20, .ring_slots = 2}};
  ASSERT_TRUE(Stream(50, setting).status.ok());
  const auto modules = engine::ListModules(spec(), weights_, setting.form, (1 << 20) / 4);
  const auto& lanes = report_.timeline.lanes;
  EXPECT_EQ(lanes[Timeline::kLoads].size(), modules.size());
  EXPECT_EQ(lanes[Timeline::kModel].size(), 26u);  // embed, 3 attention, dense, 2 route, 16 experts, 2 shared, head
  int64_t bytes = 0;
  for (const engine::Module& module : modules) {
    for (const engine::StagedRange& range : module.image.ranges) bytes += range.bytes;
  }
  EXPECT_EQ(report_.counters.streamed_bytes, bytes);
  EXPECT_EQ(report_.counters.runs, 1);
  EXPECT_EQ(report_.counters.max_ring_occupancy, 2);
  // Steps follow each other on their stream, and no module is used before it is there.
  double last = report_.begin;
  for (const Span& span : lanes[Timeline::kModel]) {
    EXPECT_GE(span.begin, last);
    EXPECT_GE(span.end, span.begin);
    last = span.end;
  }
  EXPECT_GE(report_.counters.wall_seconds, report_.counters.compute_seconds);
  EXPECT_GE(report_.counters.stall_seconds, 0);
}

}  // namespace
}  // namespace moestro::prefill
