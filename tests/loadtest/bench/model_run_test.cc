#include "loadtest/bench/model_run.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/synthetic_segment.h"

namespace moestro::bench {
namespace {

using ::testing::HasSubstr;

constexpr ModelRunOptions kShort = {.threads = 2, .repetitions = 2, .prompt_tokens = 9, .decode_tokens = 3};

TEST(ModelRunTest, TimesPromptDecodeAndExperts) {
  for (const weights::ModelSpec& spec : {SmallSpec(), SmallGroupedSpec(), SmallMixedSpec()}) {
    const SyntheticSegment model = MakeSyntheticSegment({.spec = spec});
    const auto run = MeasureModel(*model.segment, kShort);
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_EQ(run->repetitions.size(), 2u);
    for (const ModelRepetition& r : run->repetitions) {
      EXPECT_GT(r.read_bytes_per_second, 0);
      EXPECT_GT(r.prompt_seconds, 0);
      EXPECT_GT(r.decode_seconds, 0);
      EXPECT_GT(r.experts_prompt_seconds, 0);
      EXPECT_GT(r.experts_decode_seconds, 0);
    }
    // FP8: a byte a weight.
    const auto experts = static_cast<double>(spec.num_moe_layers() * spec.experts_per_token);
    EXPECT_EQ(run->experts_token_bytes,
              experts * static_cast<double>(3 * spec.hidden_size * spec.moe_intermediate_size));
    EXPECT_GT(run->decode_token_bytes, run->experts_token_bytes);
    EXPECT_LT(run->decode_token_bytes, static_cast<double>(run->segment_bytes));
    const nlohmann::json report = ModelRunJson(*run);
    EXPECT_EQ(report.at("schema"), kModelRunSchema);
    EXPECT_EQ(report.at("settings").at("threads"), 2);
    EXPECT_EQ(report.at("repetitions").size(), 2u);
    EXPECT_TRUE(report.at("machine").contains("revision"));
  }
}

TEST(ModelRunTest, RefusesOptionsByFlag) {
  const SyntheticSegment model = MakeSyntheticSegment({.spec = SmallSpec()});
  const auto message = [&](ModelRunOptions options) {
    return std::string(MeasureModel(*model.segment, options).status().message());
  };
  ModelRunOptions options = kShort;
  options.prompt_tokens = 1 << 20;
  EXPECT_THAT(message(options), HasSubstr("--prompt 1048576: use 1 to "));
  options = kShort;
  options.decode_tokens = 0;
  EXPECT_THAT(message(options), HasSubstr("--decode 0: use 1 to "));
  options = kShort;
  options.repetitions = 0;
  EXPECT_THAT(message(options), HasSubstr("--repetitions 0"));
  options = kShort;
  options.threads = -1;
  EXPECT_THAT(message(options), HasSubstr("--threads -1"));
}

}  // namespace
}  // namespace moestro::bench
