#include "loadtest/workloads/ramp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loadtest/report/ramp.h"
#include "loadtest/run/runner.h"
#include "tests/loadtest/fake_transport.h"

namespace moestro::loadtest {
namespace {

RampOptions Options(double last) {
  RampOptions options{.last = last, .step_seconds = 20};
  options.slo = {.ttft_seconds = 1.5, .tpot_seconds = 10};
  options.traffic = {.prompt = {}, .output = *Lengths::Parse("", "2"), .vocab_size = 10, .max_context_tokens = 100};
  return options;
}

// Four requests at a time take 1 s each, more of them accordingly longer.
FakeTransport FourAtATime() {
  return FakeTransport([](const Request&, int in_flight) {
    return FakeTimes{.ttft = 0.8 * std::max(1.0, in_flight / 4.0), .tpot = 0.1};
  });
}

TEST(Ramp, ClosedLoopStopsAfterTheKnee) {
  FakeTransport transport = FourAtATime();
  const RampOptions options = Options(256);
  RampWorkload workload(options);
  const RunResult result = RunWorkload(workload, transport, {});
  std::vector<double> levels;
  for (const RampStep& step : workload.steps()) levels.push_back(step.level);
  EXPECT_THAT(levels, testing::ElementsAre(1, 2, 4, 8, 16)) << "two steps without more, then the end";
  const auto knee = FindKnee(workload.steps());
  ASSERT_TRUE(knee.has_value());
  EXPECT_EQ(workload.steps()[*knee].level, 4);
  EXPECT_NEAR(workload.steps()[0].goodput(), 1, 0.05);
  EXPECT_EQ(transport.most_in_flight(), 16);
  Report report{.workload = "ramp"};
  AddRampSection(options, workload.steps(), result.records, report);
  EXPECT_EQ(report.data["knee"], 4);
  EXPECT_THAT(report.findings[0], testing::HasSubstr("Saturated at 4 at a time"));
}

TEST(Ramp, EndsAtTheLastLevelWithoutAKneeIfGoodputStillRises) {
  FakeTransport transport = FourAtATime();
  const RampOptions options = Options(4);
  RampWorkload workload(options);
  const RunResult result = RunWorkload(workload, transport, {});
  EXPECT_EQ(workload.steps().size(), 3U);
  Report report{.workload = "ramp"};
  AddRampSection(options, workload.steps(), result.records, report);
  EXPECT_TRUE(report.data["knee"].is_null());
  EXPECT_EQ(report.findings[0],
            "Not saturated yet, goodput may rise further: no step finished after the best one (--to)");
}

// In the middle of the fourth step, at 8 at a time.
TEST(Ramp, AStepThatWasInterruptedSaysNothingOfTheOnesBefore) {
  FakeTransport transport = FourAtATime();
  const RampOptions options = Options(256);
  RampWorkload workload(options);
  RunOptions run;
  run.interrupted = [&] { return workload.steps().size() == 4 && workload.steps().back().good > 0; };
  const RunResult result = RunWorkload(workload, transport, run);
  Report report{.workload = "ramp", .interrupted = result.interrupted};
  AddRampSection(options, workload.steps(), result.records, report);
  EXPECT_TRUE(report.data["knee"].is_null());
  EXPECT_EQ(report.findings[0],
            "Not saturated yet, goodput may rise further: no step finished after the best one (interrupted)");
}

TEST(Ramp, OpenLoopRaisesTheRate) {
  FakeTransport transport([](const Request&, int) { return FakeTimes{.ttft = 0.1, .tpot = 0.1}; });
  RampOptions options = Options(8);
  options.open_loop = true;
  RampWorkload workload(options);
  RunWorkload(workload, transport, {});
  ASSERT_EQ(workload.steps().size(), 4U);
  EXPECT_NEAR(workload.steps()[3].goodput(), 8, 2);
  EXPECT_EQ(FindKnee(workload.steps()), std::nullopt);
}

TEST(Ramp, StepsOfLowRatesStaySeparate) {
  FakeTransport transport([](const Request&, int) { return FakeTimes{.ttft = 0.1, .tpot = 0.1}; });
  RampOptions options = Options(0.004);
  options.open_loop = true;
  options.first = 0.001;
  options.step_seconds = 5000;
  RampWorkload workload(options);
  const RunResult result = RunWorkload(workload, transport, {});
  std::vector<std::string> names;
  for (const GroupSummary& group : SummarizeGroups(result.records, options.slo)) names.push_back(group.name);
  EXPECT_THAT(names, testing::ElementsAre("0.001 per second", "0.002 per second", "0.004 per second"));
}

TEST(Ramp, NoKneeWithoutAGoodRequest) {
  EXPECT_EQ(FindKnee({}), std::nullopt);
  EXPECT_EQ(FindKnee({{.level = 1, .begin = 0, .end = 5, .requests = 4, .good = 0}}), std::nullopt);
}

}  // namespace
}  // namespace moestro::loadtest
