#include "loadtest/workloads/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "loadtest/report/chat.h"
#include "loadtest/run/runner.h"
#include "tests/loadtest/fake_transport.h"

namespace moestro::loadtest {
namespace {

ChatOptions SmallChat() {
  return {.users = 2, .turns = 3, .system_tokens = 10, .message_tokens = 4, .answer_tokens = 5, .vocab_size = 1000};
}

TEST(Chat, HistoryGrowsByAnswersAndMessages) {
  FakeTransport transport(
      [](const Request&, int) { return FakeTimes{}; },
      [](const Request& request, int position) { return 2000 + 10 * static_cast<int>(request.tag) + position; });
  ChatWorkload workload(SmallChat());
  const RunResult result = RunWorkload(workload, transport, {});
  ASSERT_EQ(result.records.size(), 6U);
  std::vector<std::vector<int32_t>> last(2);
  for (const Request& request : transport.requests()) {
    auto& before = last[static_cast<size_t>(request.tag)];
    if (before.empty()) {
      EXPECT_EQ(request.token_ids.size(), 14U);
    } else {
      EXPECT_EQ(request.token_ids.size(), before.size() + 9);
      EXPECT_TRUE(std::equal(before.begin(), before.end(), request.token_ids.begin()));
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(request.token_ids[before.size() + static_cast<size_t>(i)], 2000 + 10 * request.tag + i);
      }
    }
    before = request.token_ids;
  }
  EXPECT_TRUE(std::equal(last[0].begin(), last[0].begin() + 10, last[1].begin())) << "the system prompt is shared";
  EXPECT_NE(last[0][10], last[1][10]);
  EXPECT_EQ(LongestConversation(SmallChat()), static_cast<int64_t>(last[0].size()) + 5);
}

TEST(Chat, UsersThinkAndStagger) {
  ChatOptions options = SmallChat();
  options.think_seconds = 7;
  options.stagger_seconds = 3;
  FakeTransport transport;
  ChatWorkload workload(options);
  const RunResult result = RunWorkload(workload, transport, {});
  std::vector<double> sent;
  for (const Record& record : result.records) {
    if (record.tag == 1) sent.push_back(record.sent);
  }
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_NEAR(sent[0], 3, 1e-9);
  EXPECT_NEAR(sent[1], 3 + 1.5 + 7, 1e-9);
}

TEST(Chat, AConversationEndsWithAFailure) {
  FakeTransport transport([](const Request& request, int) {
    return FakeTimes{.status = request.tag == 0 ? absl::UnavailableError("down") : absl::OkStatus()};
  });
  ChatWorkload workload(SmallChat());
  EXPECT_EQ(RunWorkload(workload, transport, {}).records.size(), 4U);
}

TEST(ChatSection, SumsUpByTurn) {
  FakeTransport transport;
  ChatWorkload workload(SmallChat());
  const RunResult result = RunWorkload(workload, transport, {});
  Report report{.workload = "chat"};
  AddChatSection(result.records, {}, report);
  EXPECT_EQ(report.data["turns"].size(), 3U);
  EXPECT_EQ(report.data["turns"][2]["prompt_tokens"], 32);
  EXPECT_EQ(report.data["turns"][2]["cached_tokens"], 3);
}

}  // namespace
}  // namespace moestro::loadtest
