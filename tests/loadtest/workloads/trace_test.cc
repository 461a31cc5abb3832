#include "loadtest/workloads/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "loadtest/workloads/replay.h"

namespace moestro::loadtest {
namespace {

using testing::HasSubstr;

TEST(ParseTrace, SortsAndSkipsComments) {
  const auto trace = ParseTrace(
      "# head\n\n"
      "{\"arrival\": 2.5, \"prompt_tokens\": 10, \"output_tokens\": 3}\r\n"
      "{\"arrival\": 1, \"prompt_tokens\": 20, \"output_tokens\": 4, \"prefix_id\": \"s\", \"prefix_tokens\": 8}\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->size(), 2U);
  EXPECT_EQ((*trace)[0].arrival, 1);
  EXPECT_EQ((*trace)[0].prefix_id, "s");
  EXPECT_EQ((*trace)[0].prefix_tokens, 8);
  EXPECT_EQ((*trace)[1].prompt_tokens, 10);
}

TEST(ParseTrace, ErrorsNameTheLineAndTheField) {
  const auto error = [](const std::string& line) {
    const auto trace = ParseTrace("# one\n{\"arrival\": 0, \"prompt_tokens\": 1, \"output_tokens\": 1}\n" + line);
    EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument) << line;
    return std::string(trace.status().message());
  };
  EXPECT_THAT(error("{\"arrival\": 0"), HasSubstr("line 3: not a JSON object"));
  EXPECT_THAT(error("[1]"), HasSubstr("line 3: not a JSON object"));
  EXPECT_THAT(error("{\"prompt_tokens\": 1, \"output_tokens\": 1}"), HasSubstr("line 3: arrival"));
  EXPECT_THAT(error("{\"arrival\": -1, \"prompt_tokens\": 1, \"output_tokens\": 1}"), HasSubstr("arrival"));
  EXPECT_THAT(error("{\"arrival\": 0, \"output_tokens\": 1}"), HasSubstr("prompt_tokens is missing"));
  EXPECT_THAT(error("{\"arrival\": 0, \"prompt_tokens\": 0, \"output_tokens\": 1}"),
              HasSubstr("prompt_tokens must be"));
  EXPECT_THAT(error("{\"arrival\": 0, \"prompt_tokens\": 1.5, \"output_tokens\": 1}"),
              HasSubstr("prompt_tokens must be"));
  EXPECT_THAT(error("{\"arrival\": 0, \"prompt_tokens\": 1, \"output_tokens\": 1e30}"), HasSubstr("output_tokens"));
  EXPECT_THAT(error("{\"arrival\": 0, \"prompt_tokens\": 1, \"output_tokens\": 1, \"x\": 1}"), HasSubstr("\"x\""));
  EXPECT_THAT(error("{\"arrival\": 0, \"prompt_tokens\": 1, \"output_tokens\": 1, \"prefix_id\": \"a\"}"),
              HasSubstr("must be given together"));
  EXPECT_THAT(error("{\"arrival\": 0, \"prompt_tokens\": 1, \"output_tokens\": 1, \"prefix_id\": \"a\", "
                    "\"prefix_tokens\": 2}"),
              HasSubstr("must not exceed prompt_tokens"));
}

TEST(Replay, SendsTheExampleAsItSays) {
  std::ifstream file("loadtest/traces/example.jsonl");
  ASSERT_TRUE(file.is_open()) << "to be run from the root of the repository";
  const auto trace = ParseTrace(std::string(std::istreambuf_iterator<char>(file), {}));
  ASSERT_TRUE(trace.ok()) << trace.status();
  ReplayWorkload workload(*trace, /*speed=*/2, /*vocab_size=*/1000, /*seed=*/1);
  std::vector<Request> requests;
  std::vector<double> times;
  while (const auto next = workload.NextArrival(0)) {
    times.push_back(*next);
    requests.push_back(workload.Take(*next));
  }
  ASSERT_THAT(times, testing::ElementsAre(0, 0.2, 0.25, 0.55, 1, 1.1));
  const auto beginning = [](const Request& request) {
    return std::vector<int32_t>(request.token_ids.begin(), request.token_ids.begin() + 128);
  };
  EXPECT_EQ(beginning(requests[0]), beginning(requests[5]));
  EXPECT_NE(requests[0].token_ids[128], requests[5].token_ids[128]);
  EXPECT_EQ(requests[2].token_ids.size(), 900U);
  EXPECT_EQ(requests[2].max_tokens, 8U);
}

}  // namespace
}  // namespace moestro::loadtest
