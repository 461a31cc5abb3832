#include "common/batch/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace moestro::batch {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(ReplyTest, WhatAnotherTryMayChangeIsTriedAgain) {
  for (const int status : {0, 408, 429, 502, 503}) EXPECT_EQ(Judge({.status = status}), Verdict::kRetry) << status;
  for (const int status : {409, 500, 504}) EXPECT_EQ(Judge({.status = status}), Verdict::kRetryFew) << status;
  for (const int status : {200, 400, 404, 413, 501}) EXPECT_EQ(Judge({.status = status}), Verdict::kDone) << status;
  for (const int status : {401, 403}) EXPECT_EQ(Judge({.status = status}), Verdict::kRefused) << status;
}

TEST(ReplyTest, PausesGrowToALimitAndAreSpread) {
  EXPECT_EQ(PauseAfter(1, {}, 0), milliseconds(250));
  EXPECT_EQ(PauseAfter(2, {}, 0), milliseconds(500));
  EXPECT_EQ(PauseAfter(1000, {}, 0), milliseconds(8000));
  EXPECT_GT(PauseAfter(1, {}, 511), milliseconds(370));
  EXPECT_LT(PauseAfter(1000, {}, UINT64_MAX), milliseconds(12000));
  EXPECT_EQ(PauseAfter(1, {.retry_after = milliseconds(3000)}, 0), milliseconds(3000));
  EXPECT_EQ(PauseAfter(1, {.retry_after = milliseconds(60000)}, 0), milliseconds(60000));
}

TEST(ReplyTest, AnAnswerIsTheResponse) {
  const Result result =
      ResultOf({.custom_id = "a\"b"}, "batch_req_1",
               {.status = 200, .body = R"({"id": "cmpl-7", "z": 1, "a": 0.1, "usage": {"completion_tokens": 5}})"});
  EXPECT_TRUE(result.ok);
  EXPECT_EQ(result.generated_tokens, 5u);
  EXPECT_EQ(result.line,
            R"({"id":"batch_req_1","custom_id":"a\"b","response":{"status_code":200,"request_id":"cmpl-7",)"
            R"("body":{"id":"cmpl-7","z":1,"a":0.1,"usage":{"completion_tokens":5}}},"error":null})");
}

TEST(ReplyTest, ARefusalIsAResponseThatFailed) {
  const Result result =
      ResultOf({.custom_id = "a"}, "1", {.status = 400, .body = R"({"error": {"message": "top_p: must be"}})"});
  EXPECT_FALSE(result.ok);
  const json line = json::parse(result.line);
  EXPECT_EQ(line["response"]["status_code"], 400);
  EXPECT_EQ(line["response"]["body"]["error"]["message"], "top_p: must be");
  EXPECT_TRUE(line["error"].is_null());
}

TEST(ReplyTest, WhatIsNoJsonIsAnError) {
  const Result result = ResultOf({.custom_id = "a"}, "1", {.status = 200, .body = "<html>"});
  EXPECT_FALSE(result.ok);
  const json line = json::parse(result.line);
  EXPECT_TRUE(line["response"].is_null());
  EXPECT_EQ(line["error"]["code"], "invalid_reply");
}

TEST(ReplyTest, DescriptionsHaveTheServersWords) {
  EXPECT_EQ(Describe({.status = 503, .body = R"({"error": {"message": "prefill does not answer"}})"}),
            "HTTP 503: prefill does not answer");
  EXPECT_EQ(Describe({.status = 502, .body = "<html>"}), "HTTP 502");
  EXPECT_EQ(Describe({.failure = "connection refused"}), "connection refused");
}

// What a server asks for is bounded: a number of its own must not stop a batch for days, or overflow.
TEST(ReplyTest, PausesAreBoundedWhateverTheServerAsksFor) {
  for (const int64_t seconds : {int64_t{86400} * 365, INT64_MAX / 1000}) {
    const std::chrono::milliseconds pause =
        PauseAfter(1, {.status = 503, .retry_after = std::chrono::seconds(seconds)}, 511);
    EXPECT_GT(pause.count(), 0) << seconds;
    EXPECT_LE(pause, std::chrono::hours(24)) << seconds;
  }
}

}  // namespace
}  // namespace moestro::batch
