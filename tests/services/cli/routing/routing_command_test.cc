#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "common/model/routing_trace.h"
#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(CliTest, RoutingSummarisesATrace) {
  const std::string path = directory_ + "/trace";
  const auto writer =
      model::RoutingTraceWriter::Create(
          path, {.fingerprint = "f", .first_moe_layer = 1, .moe_layers = 1, .num_experts = 20, .experts_per_token = 2})
          .value();
  const model::TracedToken tokens[] = {{0, 3, true}, {1, 8, false}};
  writer->Begin(tokens);
  writer->Note(0, 0, std::vector<model::ExpertChoice>{{3, 1}, {4, 1}, {3, 1}, {5, 1}});
  ASSERT_TRUE(writer->End().ok());
  const Result result = Run({"routing", path, "--json"}, /*with_server=*/false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("passes"), 1);
  EXPECT_EQ(out.at("prompt_tokens"), 1);
  EXPECT_EQ(out.at("generated_tokens"), 1);
  EXPECT_EQ(out.at("different_experts_per_pass_and_layer"), 3.0);
  EXPECT_EQ(out.at("share_of_the_hottest_tenth"), 0.75) << "experts 3 and 4: three of four choices";
  writer->Begin(std::span(tokens).last(1));
  writer->Note(0, 0, std::vector<model::ExpertChoice>{{4, 1}, {5, 1}});
  ASSERT_TRUE(writer->End().ok());
  const Result replayed =
      Run({"routing", path, "--cache-experts", "0,2", "--cache-loads", "2", "--prompts", "--json"}, false);
  ASSERT_TRUE(replayed.status.ok()) << replayed.status;
  const json caches = json::parse(replayed.out).at("caches");
  EXPECT_EQ(caches.at(0).at("hit_rate"), 0);
  EXPECT_EQ(caches.at(1).at("hit_rate"), 0.2) << "3, 4, 5, then 4 of the two held and 5";
  EXPECT_THAT(Run({"routing", path, "--cache-experts", "21"}, false).status.message(), HasSubstr("--cache-experts"));
  EXPECT_THAT(Run({"routing", directory_ + "/none"}, false).status.message(), HasSubstr("none: cannot be read"));
}

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(CliTest, RoutingNeedsARecordingOrACommand) {
  EXPECT_THAT(Run({"routing"}, false).status.message(), HasSubstr("name a recording, or make, fit or import"));
}

TEST_F(CliTest, RoutingMakesWhatItFitted) {
  const std::vector<std::string> like = {"--experts", "64",          "--per-token", "4",        "--layers",
                                         "2",         "--sequences", "64",          "--tokens", "16"};
  const auto run = [&](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), like.begin(), like.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(std::move(arguments), /*with_server=*/false);
  };
  const Result fit = run({"routing", "fit"}, {"--cold-share", "0.1", "--accuracy", "0.8", "--json"});
  ASSERT_TRUE(fit.status.ok()) << fit.status;
  const json found = json::parse(fit.out);
  const std::string a = directory_ + "/a", b = directory_ + "/b";
  for (const std::string& path : {a, b}) {
    const Result made = run({"routing", "make"}, {"--popularity", found.at("popularity").dump(), "--drift",
                                                  found.at("drift").dump(), "--out", path});
    ASSERT_TRUE(made.status.ok()) << made.status;
  }
  EXPECT_EQ(Bytes(a), Bytes(b));
  const json out = json::parse(Run({"routing", a, "--json"}, false).out);
  EXPECT_EQ(out.at("passes"), 16);
  EXPECT_EQ(out.at("scores_per_token"), 4);
  EXPECT_NEAR(out.at("share_of_the_coldest_70_percent").get<double>(), 0.1, 0.02);
  EXPECT_EQ(out.at("share_of_the_coldest_70_percent"), found.at("cold_share"));
  EXPECT_EQ(out.at("moving_average_accuracy"), found.at("average_accuracy"));

  EXPECT_THAT(run({"routing", "make"}, {"--drift", "2", "--out", a}).status.message(), HasSubstr("drift: 2"));
  EXPECT_THAT(run({"routing", "make"}, {"--out", directory_ + "/none/a"}).status.message(), HasSubstr("--out"));
  EXPECT_THAT(run({"routing", "fit"}, {"--accuracy", "0.99"}).status.message(), HasSubstr("without drift"));
}

TEST_F(CliTest, RoutingImportsText) {
  const std::string text = directory_ + "/text", trace = directory_ + "/trace";
  std::ofstream(text) << "0 0 1 2 3\n0 1 1 3 4\n1 0 1 3 5\n";
  const auto import = [&](const std::string& file, const std::string& experts) {
    return Run({"routing", "import", file, "--experts", experts, "--together", "2", "--out", trace}, false).status;
  };
  ASSERT_TRUE(import(text, "6").ok()) << import(text, "6");
  const json out = json::parse(Run({"routing", trace, "--json"}, false).out);
  EXPECT_EQ(out.at("passes"), 2);
  EXPECT_EQ(out.at("generated_tokens"), 3);
  EXPECT_EQ(out.at("first_moe_layer"), 1);
  EXPECT_THAT(import(text, "5").message(), HasSubstr("text: line 3: expert \"5\""));
  EXPECT_THAT(import(directory_ + "/none", "5").message(), HasSubstr("none: cannot be read"));
}

}  // namespace
}  // namespace moestro::cli
