#include "loadtest/workloads/paper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "loadtest/run/runner.h"
#include "tests/loadtest/fake_transport.h"

namespace moestro::loadtest {
namespace {

TEST(PlanCells, EveryLoadOnEveryServerOnceARound) {
  const auto cells = PlanCells(3, 2);
  ASSERT_EQ(cells.size(), 30U);
  std::map<std::tuple<int, int, int>, int> seen;
  for (const PaperCell& cell : cells) ++seen[{cell.round, cell.load, cell.server}];
  EXPECT_EQ(seen.size(), 30U);
  EXPECT_NE(cells[0].server, cells[10].server) << "servers take turns in going first";
  EXPECT_NE(cells[0].load, cells[10].load);
}

TEST(Paper, ALoadBeginsTogetherAndEndsBeforeTheNext) {
  PaperOptions options{
      .rounds = 2, .prefill_prompt_tokens = 30, .decode_output_tokens = 6, .pause_seconds = 1, .vocab_size = 50};
  PaperWorkload workload(options);
  FakeTransport transport;
  const RunResult result = RunWorkload(workload, transport, {});
  EXPECT_EQ(result.records.size(), 2U * 9);
  double last_end = -1;
  for (size_t i = 0; i < result.records.size(); ++i) {
    const Record& record = result.records[i];
    if (i > 0 && record.tag == result.records[i - 1].tag) {
      EXPECT_EQ(record.scheduled, result.records[i - 1].scheduled);
    } else {
      EXPECT_NEAR(record.sent, last_end + 1, 1e-9);
      last_end = 0;
    }
    last_end = std::max(last_end, *record.ended);
  }
  for (const Request& request : transport.requests()) {
    const bool prefill = request.group.starts_with("prefill");
    EXPECT_EQ(request.token_ids.size(), prefill ? 30U : 10U);
    EXPECT_EQ(request.max_tokens, prefill ? 4U : 6U);
    EXPECT_TRUE(request.ignore_eos);
  }
  EXPECT_EQ(workload.Progress(), "done");
}

}  // namespace
}  // namespace moestro::loadtest
