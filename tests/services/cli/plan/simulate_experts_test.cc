// `moestro simulate --experts`.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "common/checkpoint/config.h"
#include "services/cli/plan/hardware_file.h"
#include "services/cli/plan/layer_seconds.h"
#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kMachine[] = "deploy/hardware/a6000-xeon5220r.json";

class SimulateExpertsTest : public CliTest {
 protected:
  // A recording with DeepSeek-V2-Lite's shape.
  std::string Record(const std::vector<std::string>& more = {}) {
    const std::string path = directory_ + "/recording";
    std::vector<std::string> arguments = {"routing",     "make", "--experts",          "64", "--layers", "26",
                                          "--per-token", "6",    "--predicted-layers", "3",  "--out",    path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Result result = Run(arguments, /*with_server=*/false);
    EXPECT_TRUE(result.status.ok()) << result.status;
    return path;
  }
};

TEST_F(SimulateExpertsTest, ReplaysEveryScheduleAndPolicy) {
  const std::string path = Record({"--sequences", "2", "--tokens", "400"});
  const Result result = Run(
      {"simulate", kMachine, "--experts", path, "--model", "deepseek-v2-lite", "--cache-ratio", "0,0.5,1", "--json"},
      false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  const json out = json::parse(result.out);
  EXPECT_EQ(out.at("model"), "deepseek-v2-lite");
  std::map<std::string, std::map<double, json>> rows;
  for (const json& row : out.at("schedules")) {
    const std::string name = row.at("schedule").get<std::string>() + " " + row.at("policy").get<std::string>() + " " +
                             std::to_string(row.at("prefetch_layers").get<int>());
    rows[name][row.at("cache_ratio").get<double>()] = row;
  }
  EXPECT_EQ(rows.size(), 9u);
  // Two tokens a pass; a layer's rest, and experts that all are on the CPU.
  const roofline::Machine machine = ReadLevels(kMachine).value();
  const LayerSeconds seconds(machine, checkpoint::PublishedModel("deepseek-v2-lite"), 1);
  const json& none = rows.at("fixed first-layers 0").at(0);
  EXPECT_EQ(none.at("hit_rate"), 0);
  EXPECT_EQ(none.at("loads_a_pass"), 0);
  const double experts = none.at("seconds_a_pass").get<double>() / 26 - seconds.Rest(machine.device, 2);
  EXPECT_GT(experts, 6 * seconds.Expert(machine.host, 1));
  EXPECT_LT(experts, 12 * seconds.Expert(machine.host, 2) * 1.001);
  EXPECT_NEAR(none.at("tokens_per_second").get<double>() * none.at("seconds_a_pass").get<double>(), 2, 1e-9);
  for (const auto& [name, row] : rows) {
    const bool is_faster = row.at(0.5).at("seconds_a_pass") < none.at("seconds_a_pass");
    EXPECT_EQ(is_faster, !name.starts_with("on-demand")) << name << ": a load takes longer than the CPU";
    EXPECT_GE(row.at(1).at("hit_rate"), row.at(0.5).at("hit_rate")) << name;
  }
  EXPECT_EQ(rows.at("fixed first-layers 0").at(1).at("hit_rate"), 1);
  EXPECT_LT(rows.at("hybrid mrs 0").at(0.5).at("seconds_a_pass"), rows.at("fixed lru 0").at(0.5).at("seconds_a_pass"));
  EXPECT_EQ(rows.at("hybrid lru 0").at(0.5).at("loads_ahead_a_pass"), 0);
  EXPECT_GT(rows.at("hybrid lru 3").at(0.5).at("loads_ahead_a_pass"), 0);
  EXPECT_THAT(Run({"simulate", kMachine, "--experts", path, "--model", "deepseek-v2-lite"}, false).out,
              HasSubstr("hybrid     mrs "));
}

// Of the README's commands: this machine also says what batches would do.
TEST_F(SimulateExpertsTest, OnThePapersNode) {
  const std::string node = "deploy/hardware/rtx5090-epyc9355.json";
  const Result experts =
      Run({"simulate", node, "--experts", Record({"--sequences", "1", "--tokens", "2"}), "--model", "deepseek-v2-lite"},
          false);
  EXPECT_TRUE(experts.status.ok()) << experts.status;
  const Result batch = Run({"plan", "--explain", "batch", "--hardware", node, "--model", "qwen3-30b"}, false);
  EXPECT_TRUE(batch.status.ok()) << batch.status;
  EXPECT_THAT(batch.out, HasSubstr("1152.0 GB, 1228.8 GB/s, 29.2 TFLOP/s"));
}

TEST_F(SimulateExpertsTest, NamesWhatIsWrong) {
  const std::string path = Record({"--sequences", "1", "--tokens", "2"});
  const auto error = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"simulate", kMachine, "--experts"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return std::string(Run(all, false).status.message());
  };
  EXPECT_THAT(error({path, "--model", "qwen2-57b"}), HasSubstr("6 experts a token, but qwen2-57b has 8"));
  EXPECT_THAT(error({path, "--model", "qwen3-30b"}), HasSubstr("set --model to the recorded one"));
  EXPECT_THAT(error({path, "--model", "deepseek-v2-lite", "--cache-ratio", "1.5"}), HasSubstr("--cache-ratio 1.5"));
  EXPECT_THAT(error({directory_ + "/none", "--model", "deepseek-v2-lite"}), HasSubstr("none: cannot be read"));
}

}  // namespace
}  // namespace moestro::cli
