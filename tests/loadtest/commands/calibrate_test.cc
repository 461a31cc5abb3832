#include "loadtest/commands/calibrate.h"

#include <gtest/gtest.h>

namespace moestro::loadtest {
namespace {

// 1 ms a prompt token and 0.2 s besides, 20 ms an output token.
absl::StatusOr<Record> Answer(const Request& request) {
  Record record;
  const double first = 0.2 + 0.001 * static_cast<double>(request.token_ids.size());
  for (uint32_t i = 0; i < request.max_tokens; ++i) {
    record.arrivals.push_back({.at = first + 0.02 * i, .tokens = 1});
    record.tokens.push_back(1);
  }
  return record;
}

TEST(Calibrate, FindsLengthsThatTakeTheWantedTime) {
  PaperOptions options{.vocab_size = 10};
  ASSERT_TRUE(CalibratePaper(20, 100000, Answer, &options).ok());
  EXPECT_NEAR(static_cast<double>(options.prefill_prompt_tokens), 19800, 1500);
  EXPECT_NEAR(options.decode_output_tokens, 1000, 2);
}

TEST(Calibrate, StaysWithinTheContext) {
  PaperOptions options{.vocab_size = 10};
  ASSERT_TRUE(CalibratePaper(20, 300, Answer, &options).ok());
  EXPECT_EQ(options.prefill_prompt_tokens, 296);
  EXPECT_EQ(options.decode_output_tokens, 290U);
}

TEST(Calibrate, PassesErrorsOn) {
  PaperOptions options{.vocab_size = 10};
  const auto fail = [](const Request&) -> absl::StatusOr<Record> { return absl::UnavailableError("down"); };
  EXPECT_EQ(CalibratePaper(20, 300, fail, &options).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace moestro::loadtest
