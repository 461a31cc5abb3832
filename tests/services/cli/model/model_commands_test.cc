#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
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

TEST_F(CliTest, InspectNeedsSomethingToInspect) {
  EXPECT_TRUE(absl::IsInvalidArgument(Run({"inspect"}, false).status));
  EXPECT_TRUE(absl::IsNotFound(Run({"inspect", directory_ + "/absent"}, false).status));
  EXPECT_TRUE(absl::IsNotFound(Run({"inspect", "--segment", "moestro.absent"}, false).status));
}

}  // namespace
}  // namespace moestro::cli
