#include "services/router/http/message_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::router {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(MessageBatchTest, RequestsBecomeLinesOfAFile) {
  const auto requests = ReadMessageRequests(
      "{\"requests\": [{\"custom_id\": \"a\", \"params\": {\"z\": 1,\r\n \"a\": \"x\\ny\"}},\n"
      " {\"params\": {}, \"custom_id\": \"\\u0062\"}]}",
      2);
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_EQ(requests->count, 2u);
  // Keys in the order in which they were written.
  EXPECT_EQ(requests->file,
            "{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/messages\", \"body\": {\"z\": 1,   \"a\": "
            "\"x\\ny\"}}\n"
            "{\"custom_id\": \"\\u0062\", \"method\": \"POST\", \"url\": \"/v1/messages\", \"body\": {}}\n");
}

TEST(MessageBatchTest, WrongRequestsAreNamed) {
  using namespace std::string_literals;
  const std::pair<std::string, const char*> cases[] = {
      {R"({"requests": [)", "the body is not JSON"},
      {R"({"requests": [{"custom_id": "a", "params": {}}]})"s + "\0]"s, "the body is not JSON"},
      {R"([])", "requests: must be a list of 1 to 2 requests"},
      {R"({"requests": []})", "requests: must be a list of 1 to 2 requests"},
      {R"({"requests": [1, 2, 3]})", "requests: must be a list of 1 to 2 requests"},
      {R"({"requests": ["x"]})", "requests[0].custom_id: is missing"},
      {R"({"requests": [{"custom_id": "a"}]})", "requests[0].params: is missing"},
      {R"({"requests": [{"custom_id": "a", "params": {}}, {"custom_id": "a", "params": {}}]})",
       "requests[1].custom_id: another request has it"},
      {R"({"requests": [{"custom_id": 7, "params": {}}]})", "requests[0].custom_id: must be a text"},
      {R"({"requests": [{"custom_id": "a", "params": 7}]})", "requests[0].params: must be an object"},
      {R"({"requests": [{"custom_id": "a", "params": {"stream": true}}]})", "requests[0].params.stream: a batch has"},
      {R"({"requests": [{"custom_id": "a", "params": {"a": 1, "a": 1}}]})", "requests[0]"},
  };
  for (const auto& [body, message] : cases) {
    const auto requests = ReadMessageRequests(body, 2);
    ASSERT_FALSE(requests.ok()) << body;
    EXPECT_EQ(requests.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(requests.status().message()), HasSubstr(message)) << body;
  }
}

TEST(MessageBatchTest, IdsGoBothWays) {
  EXPECT_EQ(MessageBatchId("batch_1"), "msgbatch_1");
  EXPECT_EQ(BatchIdOf("msgbatch_1"), "batch_1");
  EXPECT_EQ(BatchIdOf("x"), "x");
}

BatchRecord Batch(BatchStatus status) {
  BatchRecord batch;
  batch.id = "batch_1";
  batch.status = status;
  batch.created_at = 1;
  batch.total = 6;
  batch.completed = 3;
  batch.failed = 2;
  return batch;
}

TEST(MessageBatchTest, ABatchHasAnthropicsWords) {
  BatchRecord batch = Batch(BatchStatus::kValidating);
  for (const BatchStatus status : {BatchStatus::kValidating, BatchStatus::kInProgress, BatchStatus::kFinalizing}) {
    batch.status = status;
    EXPECT_EQ(MessageBatchJson(batch), Json::parse(R"({
      "id": "msgbatch_1", "type": "message_batch", "processing_status": "in_progress",
      "request_counts": {"processing": 6, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0},
      "created_at": "1970-01-01T00:00:01+00:00", "ended_at": null, "expires_at": "9999-12-31T23:59:59Z",
      "cancel_initiated_at": null, "archived_at": null, "results_url": null})"));
  }
  batch.status = BatchStatus::kCancelling;
  batch.cancelling_at = 2;
  EXPECT_EQ(MessageBatchJson(batch)["processing_status"], "canceling");
  EXPECT_EQ(MessageBatchJson(batch)["cancel_initiated_at"], "1970-01-01T00:00:02+00:00");
  batch.status = BatchStatus::kCancelled;
  batch.cancelled_at = 3;
  EXPECT_EQ(MessageBatchJson(batch)["processing_status"], "ended");
  EXPECT_EQ(MessageBatchJson(batch)["ended_at"], "1970-01-01T00:00:03+00:00");
  EXPECT_EQ(MessageBatchJson(batch)["results_url"], "/v1/messages/batches/msgbatch_1/results");
}

TEST(MessageBatchTest, TheCountsOfOneThatEndedHoldEveryRequest) {
  const auto counts = [](BatchStatus status) { return MessageBatchJson(Batch(status))["request_counts"].dump(); };
  EXPECT_EQ(counts(BatchStatus::kCancelled), R"({"processing":0,"succeeded":3,"errored":2,"canceled":1,"expired":0})");
  EXPECT_EQ(counts(BatchStatus::kFailed), R"({"processing":0,"succeeded":3,"errored":3,"canceled":0,"expired":0})");
}

TEST(MessageBatchTest, LinesBecomeResults) {
  EXPECT_EQ(
      MessageResult(R"({"id":"1","custom_id":"a","response":{"status_code":200,"body":{"z":1,"a":2}},"error":null})"),
      R"({"custom_id": "a", "result": {"type": "succeeded", "message": {"z":1,"a":2}}})");
  EXPECT_EQ(MessageResult(
                R"({"id":"1","custom_id":"a","response":{"status_code":400,"body":{"type":"error"}},"error":null})"),
            R"({"custom_id": "a", "result": {"type": "errored", "error": {"type":"error"}}})");
  const Json none = Json::parse(
      MessageResult(R"({"id":"1","custom_id":"a","response":null,"error":{"code":"x","message":"no answer"}})"));
  EXPECT_EQ(none["result"], Json::parse(R"({"type": "errored", "error": {"type": "error", "error":
                                            {"type": "api_error", "message": "no answer"}}})"));
}

TEST(MessageBatchTest, RequestsWithoutAnAnswerHaveAResult) {
  EXPECT_EQ(MessageResultWithout(Batch(BatchStatus::kCancelled), "a\"b"),
            R"({"custom_id": "a\"b", "result": {"type": "canceled"}})");
  BatchRecord failed = Batch(BatchStatus::kFailed);
  failed.errors = {{.line = 0, .code = "batch_failed", .param = "", .message = "the key is gone"}};
  EXPECT_THAT(MessageResultWithout(failed, "a"), HasSubstr("the key is gone"));
}

}  // namespace
}  // namespace moestro::router
