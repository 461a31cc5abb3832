#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/config.h"
#include "common/platform/instance.h"
#include "common/platform/shared_memory.h"
#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(CliTest, SegmentsListAndPrune) {
  const std::string instance = "cli-test-" + std::to_string(getpid());
  const std::string dead = KvPoolName(instance, 1);
  const std::string alive = KvPoolName(instance, 2);
  { ASSERT_TRUE(SharedMemory::Create(dead, 4096).ok()); }
  {
    const auto owner = SharedMemory::Create(alive, 8192);
    ASSERT_TRUE(owner.ok()) << owner.status();
    const json list = json::parse(Run({"segments", "list", "--instance", instance, "--json"}, false).out);
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[0]["name"], dead);
    EXPECT_EQ(list[0]["owner_alive"], false);
    EXPECT_EQ(list[1]["owner_alive"], true);
    EXPECT_EQ(list[1]["bytes"], 8192);
    const Result prune = Run({"segments", "prune", "--instance", instance}, false);
    EXPECT_EQ(prune.out, "removed " + dead + " (4.00 KiB)\n1 removed, 4.00 KiB freed\n");
    EXPECT_EQ(json::parse(Run({"segments", "list", "--instance", instance, "--json"}, false).out).size(), 1u);
  }
  ASSERT_TRUE(SharedMemory::Unlink(alive).ok());
}

TEST_F(CliTest, SegmentsThatOthersMayOpenAreLeftAlone) {
  const std::string instance = "cli-test-" + std::to_string(getpid());
  const std::string foreign = KvPoolName(instance, 3);
  { ASSERT_TRUE(SharedMemory::Create(foreign, 4096).ok()); }
  const std::string path = "/dev/shm/" + foreign;
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(Run({"segments", "list", "--instance", instance, "--json"}, false).out, "[]\n");
  const Result prune = Run({"segments", "prune", "--instance", instance}, false);
  EXPECT_TRUE(prune.status.ok()) << prune.status;
  EXPECT_EQ(prune.out, "0 removed, 0 B freed\n");
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  ASSERT_TRUE(SharedMemory::Unlink(foreign).ok());
}

TEST_F(CliTest, MakesAModelAndInspectsIt) {
  const std::string out = directory_ + "/tiny";
  const Result made = Run({"make-model", "--preset", "tiny", "--out", out}, false);
  ASSERT_TRUE(made.status.ok()) << made.status;
  EXPECT_THAT(made.out, HasSubstr("of fp8 tensors in"));
  const Result inspected = Run({"inspect", out, "--json"}, false);
  ASSERT_TRUE(inspected.status.ok()) << inspected.status;
  const json found = json::parse(inspected.out);
  EXPECT_EQ(found["family"], "deepseek_v3");
  EXPECT_GT(found["parameters"], 1000000);
  EXPECT_GT(found["segment_bytes"], found["bytes_by_kind"]["routed experts"]);
  const json alone = json::parse(Run({"inspect", out + "/config.json", "--json"}, false).out);
  EXPECT_EQ(alone["parameters"], found["parameters"]);
  EXPECT_EQ(alone["segment_bytes"], found["segment_bytes"]);
  EXPECT_GT(alone["parameters_on_disk"], alone["parameters"]) << "a layer of multi-token prediction";
  EXPECT_EQ(alone["parameters_on_disk"], found["parameters_on_disk"]);
  EXPECT_THAT(Run({"inspect", out}, false).out, HasSubstr("parameters_by_kind:\n"));
  EXPECT_TRUE(absl::IsAlreadyExists(Run({"make-model", "--out", out}, false).status));
}

// A warning names the directory.
TEST_F(CliTest, InspectsADirectoryWhoseNameIsNotUtf8) {
  const std::string out = directory_ + "/tiny \xFF";
  ASSERT_TRUE(Run({"make-model", "--preset", "tiny", "--out", out}, false).status.ok());
  const std::string header = R"({"extra": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
  std::ofstream(out + "/extra.safetensors")
      << std::string{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0} << header << "data";
  json index = json::parse(std::ifstream(out + "/model.safetensors.index.json"));
  index["weight_map"]["extra"] = "extra.safetensors";
  std::ofstream(out + "/model.safetensors.index.json") << index;
  for (const bool as_json : {false, true}) {
    std::vector<std::string> arguments = {"inspect", out};
    if (as_json) arguments.push_back("--json");
    const Result result = Run(arguments, false);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_THAT(result.out, HasSubstr("tiny \xEF\xBF\xBD: 1 tensor(s)"));
  }
}

// Of machines with these rates: a prompt takes as long as its operations, or as reading the weights.
TEST_F(CliTest, InspectEstimatesThePrefillOfAGivenMachine) {
  const auto estimate = [this](const char* bandwidth, const char* gflops) {
    const Result result =
        Run({"inspect", "deepseek-v3", "--bandwidth", bandwidth, "--gflops", gflops, "--json"}, false);
    EXPECT_TRUE(result.status.ok()) << result.status;
    return json::parse(result.out)["estimate"];
  };
  const json computes = estimate("500", "2000");
  EXPECT_EQ(computes["operation_rate_is"], "given: --gflops");
  EXPECT_EQ(computes["context_tokens"], 4096);
  // 36.6 billion parameters, and attention over 4096 * 4097 / 2 pairs in 61 layers of 128 heads of 192 + 128 numbers.
  // Of the head a row is computed.
  const double operations = 2 * ((36.626e9 - 0.927e9) * 4096 + 61 * 128 * 320.0 * 4096 * 4097 / 2);
  EXPECT_NEAR(computes["prefill_operations"].get<double>(), operations, 1e-3 * operations);
  EXPECT_DOUBLE_EQ(computes["prefill_seconds"], computes["prefill_operations"].get<double>() / 2e12);
  const json reads = estimate("1", "2000");
  EXPECT_NEAR(reads["prefill_seconds"].get<double>(), 671.3, 0.5) << "bytes of the weights";
  EXPECT_EQ(reads["prefill_operations"], computes["prefill_operations"]);
}

TEST_F(CliTest, InspectMeasuresThisMachine) {
  for (const char* model : {"deepseek-v3", "mixtral-8x7b"}) {  // FP8, BF16
    const Result result = Run({"inspect", model, "--bandwidth", "1000000", "--json"}, false);
    ASSERT_TRUE(result.status.ok()) << result.status;
    const json estimate = json::parse(result.out)["estimate"];
    const double rate = estimate["operations_per_second"];
    EXPECT_THAT(estimate["operation_rate_is"].get<std::string>(), HasSubstr("measured"));
    EXPECT_GT(rate, 1e7);
    EXPECT_LT(rate, 1e15);
    EXPECT_DOUBLE_EQ(estimate["prefill_seconds"], estimate["prefill_operations"].get<double>() / rate);
  }
}

// What is served, what a token multiplies, what is on disk.
TEST_F(CliTest, InspectCountsParametersByStatedRules) {
  const auto inspect = [this](const char* model) {
    const Result result = Run({"inspect", model, "--bandwidth", "1", "--gflops", "1", "--json"}, false);
    EXPECT_TRUE(result.status.ok()) << result.status;
    return json::parse(result.out);
  };
  const json v3 = inspect("deepseek-v3");
  EXPECT_EQ(v3["parameters"], 671026419200);
  EXPECT_EQ(v3["parameters_on_disk"], 684489845504);
  EXPECT_EQ(v3["active_parameters_with_embedding"].get<int64_t>() - v3["active_parameters"].get<int64_t>(),
            129280 * 7168);
  EXPECT_EQ(v3["active_are"],
            "all that a token multiplies: not 248 of 256 routed experts of a layer, nor the embedding, of which it "
            "reads a row");
  const json llama = inspect("llama-3.2-3b");  // its head is the embedding
  EXPECT_FALSE(llama.contains("parameters_on_disk"));
  EXPECT_EQ(llama["active_parameters"], llama["parameters"]);
  EXPECT_FALSE(llama.contains("active_parameters_with_embedding"));
  EXPECT_EQ(llama["active_are"], "all that a token multiplies");
  const json saved_again = inspect("tests/golden/published/deepseek_v3/checkpoint");
  EXPECT_FALSE(saved_again.contains("parameters_on_disk")) << "without the layer that its config tells of";
  const json kimi = inspect("kimi-k2");
  EXPECT_FALSE(kimi.contains("parameters_on_disk")) << "it predicts one token";
}

// config.json does not say which weights have four bits: routed experts, as usual.
TEST_F(CliTest, InspectOfAConfigWithFourBits) {
  ::setenv("HF_HUB_CACHE", directory_.c_str(), 1);
  const std::string file = directory_ + "/config.json";
  std::ofstream(file) << checkpoint::FindPublishedConfig("moonshotai/Kimi-K2-Thinking").value();
  for (const std::string& model : {std::string("moonshotai/Kimi-K2-Thinking"), file}) {
    const Result result = Run({"inspect", model, "--bandwidth", "100", "--gflops", "1000", "--json"}, false);
    ASSERT_TRUE(result.status.ok()) << result.status;
    const json facts = json::parse(result.out);
    EXPECT_EQ(facts["weights"], "I4_32, BF16");
    EXPECT_EQ(facts["shapes"]["max_context_tokens"], 262144);
  }
  ::unsetenv("HF_HUB_CACHE");
}

TEST_F(CliTest, InspectNeedsSomethingToInspect) {
  EXPECT_TRUE(absl::IsInvalidArgument(Run({"inspect"}, false).status));
  EXPECT_TRUE(absl::IsNotFound(Run({"inspect", directory_ + "/absent"}, false).status));
  EXPECT_TRUE(absl::IsNotFound(Run({"inspect", "--segment", "moestro.absent"}, false).status));
}

}  // namespace
}  // namespace moestro::cli
