// `moestro paper osdi`, on the node of deploy/hardware.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/checkpoint/config.h"
#include "services/cli/plan/hardware_file.h"
#include "services/cli/plan/simulate_concurrency.h"
#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNode[] = "deploy/hardware/rtx5090-epyc9355.json";

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Row {
  std::string section, paper, ours, basis, verdict;
};
// claims.csv by figure and claim. No claim of the report has a comma or a quote in quotes.
std::map<std::string, Row> ReadClaims(const std::string& path) {
  std::map<std::string, Row> rows;
  std::istringstream lines(Contents(path));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') {
        quoted = !quoted;
      } else if (c == ',' && !quoted) {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    EXPECT_EQ(fields.size(), 11u) << line;
    EXPECT_TRUE(
        rows.emplace(fields[0] + ": " + fields[1], Row{fields[2], fields[4], fields[5], fields[7], fields[9]}).second)
        << line;
  }
  return rows;
}

// Values and sections as the paper prints them, by figure and claim.
struct Printed {
  const char* claim;
  const char* section;
  const char* value;
};
constexpr Printed kPrinted[] = {
    {"1: billion parameters, DeepSeek-V3 and R1", "4.3", "671"},
    {"1: GB of memory, 24 modules of 48 GB", "4.1", "1150"},
    {"1: GB/s of memory, 24 channels of DDR5-6400", "4.1", "1228"},
    {"1: GB of weights, Kimi-K2 (roughly)", "2.1", "1000"},
    {"1: GB/s for 20 tokens/s, DeepSeek-V3 (approximately)", "2.1", "1000"},
    {"3: share before experts, 20K tokens (more than)", "5", "0.4"},
    {"3: layer, CP2+EP2 / one device, 20K tokens", "2.2.3", "0.79"},
    {"3: layer, CP2+SmallEP2 / one device, 20K tokens", "2.2.3", "0.6478"},
    {"3: dispatch and combine / layer, CP2+EP2", "2.2.3", "0.31"},
    {"3: ms of gating and sorting, CP2+SmallEP2 (below)", "3.2", "10"},
    {"13: most tokens/s, 4K to 64K tokens (up to)", "1", "1200"},
    {"13: 4K tokens are transfer-bound (1: yes)", "4.2", "1"},
    {"13: CP2+SmallEP2 times as fast, 20K tokens", "4.2", "1.64"},
    {"13: CP2+SmallEP2 times as fast, 32K tokens", "4.2", "1.64"},
    {"13: most tokens/s of two GPUs, 4K to 64K tokens (over)", "1", "1800"},
    {"13: SLP over KTransformers as estimated, 32K tokens", "4.2", "2.8"},
    {"13: SLP over the CPU, 32K tokens (more than)", "4.2", "10"},
    {"14: seconds, 32K tokens (at most)", "1", "30"},
    {"14: seconds, 45K tokens on 2 devices (at most)", "1", "30"},
    {"14: tokens from which a prompt streams rather than stays on the CPU", "4.2", "4096"},
    {"15: one stream", "4.3", "21.5"},
    {"15: one stream, 32K (about)", "4.3", "20"},
    {"15: one stream, Kimi-K2", "4.3", "22.4"},
    {"15: two streams", "4.3", "33.6"},
    {"15: two streams, 32K", "4.3", "31.1"},
    {"15: µs of experts, a layer of one stream (approximately)", "3.3.1", "450"},
    {"15: µs of all else, a layer of one stream (approximately)", "3.3.1", "350"},
    {"16: batch 4 (1.58 x one stream)", "4.3", "33.97"},
    {"16: batch 6 (1.61 x one stream)", "4.3", "34.615"},
    {"16: batch 2 over one sequence", "4.3", "1.56"},
    {"16: batch 4 over one sequence", "4.3", "1.58"},
    {"16: batch 6 over one sequence", "4.3", "1.61"},
    {"16: tokens/s of each of two sequences", "4.3", "16.8"},
    {"17: tokens/s, 1K tokens of context", "4.4", "28"},
    {"17: tokens/s, 8K tokens of context", "4.4", "28"},
    {"17: tokens/s, 128K tokens of context", "4.4", "19"},
    {"17: 1K tokens, over KTransformers' 22 tokens/s (by 25 %)", "4.4", "1.25"},
    {"17: 1K tokens, over ik_llama.cpp's 14 tokens/s (nearly)", "4.4", "2"},
    {"17: GB of DeepSeek-R1 in Q4_K_M", "4.4", "404"},
    {"18: seconds, 24K tokens (about)", "4.5", "20"},
    {"18: seconds of a decode of 480 tokens, 1D (about)", "4.5", "20"},
    {"18: time to the first token, 1P+1D over 1P (below)", "1", "1.15"},
    {"18: time per token, 1P+1D over 1D (below)", "1", "1.15"},
    {"18: time to the first token, 1P+2D over 1P", "4.5", "1.18"},
    {"18: time per token, most over 1D", "4.5", "1.54"},
    {"18: time for all requests, most over 1P", "4.5", "1.67"},
    {"table1: times as fast as OpenBLAS in F32 (at least)", "4.6", "4.48387"},
    {"table1: times as fast as a library in BF16: AOCL there, oneDNN here (at least)", "4.6", "4.48387"},
    {"table1: times as fast as the standard kernel (at least)", "4.6", "1.4"},
    {"table1: p95 of the L1 error, outputs of deviation 1 (at most)", "3.4.1", "0.0017"},
    {"table2: % right, DeepSeek-V3.1, MMLU-Redux", "4.7", "91"},
    {"table2: % right, DeepSeek-V3.1, MMLU-Pro", "4.7", "83.41"},
    {"table2: % right, Kimi-K2-Instruct, MMLU-Redux", "4.7", "91.53"},
    {"table2: % right, Kimi-K2-Instruct, MMLU-Pro", "4.7", "80"},
    {"section 6: tokens, to 64K, from which two slots are enough", "3.1", "50000"},
    {"section 6: decode with half the DRAM bandwidth, one stream (linear)", "6", "0.5"},
    {"section 6: decode with half the DRAM bandwidth, two streams (linear)", "6", "0.5"},
    {"section 6: GB of a ring with a layer's experts, DeepSeek-V3", "6", "11.3"},
    {"section 6: GB of a ring with a layer's experts, Kimi-K2", "6", "16.9"},
    {"section 6: GB of it on each of two GPUs, DeepSeek-V3", "6", "5.6"},
    {"section 6: GB of it on each of two GPUs, Kimi-K2", "6", "8.5"},
    {"section 6: thousand matrices of experts, DeepSeek-V3", "3.1", "44.5"},
    {"section 6: billion parameters of a token's experts, DeepSeek-V3", "2.2.1", "20.4"},
    {"section 6: GB/s of KTransformers' decode, from its published figures", "2.2.1", "221"},
    {"section 6: share of the experts in the time of a token (about)", "6", "0.6"},
};

// What deviates by more than 15 %: services/cli/paper/README.md says why. All else is within.
const std::set<std::string> kMisses = {
    "1: GB/s for 20 tokens/s, DeepSeek-V3 (approximately)",
    "3: dispatch and combine / layer, CP2+EP2",
    "3: layer, CP2+SmallEP2 / one device, 20K tokens",
    "13: most tokens/s, 4K to 64K tokens (up to)",
    "13: SLP over KTransformers as estimated, 32K tokens",
    "15: one stream, Kimi-K2",
    "15: µs of all else, a layer of one stream (approximately)",
    "17: tokens/s, 1K tokens of context",
    "17: tokens/s, 8K tokens of context",
    "17: tokens/s, 128K tokens of context",
    "17: 1K tokens, over KTransformers' 22 tokens/s (by 25 %)",
    "17: 1K tokens, over ik_llama.cpp's 14 tokens/s (nearly)",
    "18: seconds, 24K tokens (about)",
    "18: time to the first token, 1P+1D over 1P (below)",
    "18: time to the first token, 1P+2D over 1P",
    "18: time for all requests, most over 1P",
    "section 6: tokens, to 64K, from which two slots are enough",
    "section 6: decode with half the DRAM bandwidth, one stream (linear)",
};

// With the figure that simulates decode: SimulateTwoDevicesIsTheSameEveryTime has prompts.
TEST_F(CliTest, PaperOsdiIsTheSameTwice) {
  const std::string first = directory_ + "/first", second = directory_ + "/second";
  for (const std::string& out : {first, second}) {
    ASSERT_TRUE(Run({"paper", "osdi", "--figure", "15", "--out", out}, /*with_server=*/false).status.ok());
  }
  for (const char* file : {"/claims.csv", "/points.csv", "/index.html"}) {
    EXPECT_FALSE(Contents(first + file).empty()) << file;
    EXPECT_EQ(Contents(first + file), Contents(second + file)) << file;
  }
}

TEST_F(CliTest, PaperOsdiComparesEveryFigure) {
  const std::string first = directory_ + "/first", path = directory_ + "/node.json";
  // Which claims are missed depends on the kernels' rates: those of kMisses.
  nlohmann::json machine = nlohmann::json::parse(std::ifstream(kNode));
  machine["kernels"].update({{"bf16_linear_fraction", 0.744},
                             {"attention_fraction", 0.8},
                             {"fp8_flops_per_second", 838e12},
                             {"fp8_linear_fraction", 0.558},
                             {"decode_memory_fraction", 0.849},
                             {"decode_attention_fraction", 0.751}});
  std::ofstream(path) << machine;
  const Result once = Run({"paper", "osdi", "--hardware", path, "--out", first}, /*with_server=*/false);
  ASSERT_TRUE(once.status.ok()) << once.status;

  std::map<std::string, Row> rows = ReadClaims(first + "/claims.csv");
  EXPECT_EQ(rows.size(), std::size(kPrinted));
  for (const Printed& printed : kPrinted) {
    ASSERT_TRUE(rows.contains(printed.claim)) << printed.claim;
    EXPECT_EQ(rows[printed.claim].section, printed.section) << printed.claim;
    EXPECT_EQ(rows[printed.claim].paper, printed.value) << printed.claim;
  }
  std::set<std::string> misses, open;
  for (const auto& [claim, row] : rows) {
    if (row.verdict == "miss") misses.insert(claim);
    if (row.verdict == "open") open.insert(claim);
    if (row.verdict == "not met") {
      EXPECT_EQ(claim, "13: SLP over the CPU, 32K tokens (more than)");
    }
    if (row.basis == "exact") {
      EXPECT_EQ(row.verdict, "met") << claim;
    }
  }
  EXPECT_EQ(misses, kMisses);
  for (const std::string& claim : open) EXPECT_THAT(claim, HasSubstr("table"));
  EXPECT_EQ(open.size(), 8u);

  EXPECT_THAT(once.out, HasSubstr("They have not run on a GPU"));
  const std::string points = Contents(first + "/points.csv"), page = Contents(first + "/index.html");
  for (const char* figure : {"1", "3", "13", "14", "15", "16", "17", "18", "section 6"}) {
    EXPECT_THAT(points, HasSubstr("\n" + std::string(figure) + ",")) << figure;
  }
  EXPECT_THAT(points,
              HasSubstr("\n13,\"Tokens per second, as built\",\"KTransformers, AMX, INT4\",cited,8192,409.6,\n"));
  EXPECT_THAT(points, HasSubstr("\n16,Throughput over that of one sequence,paper,cited,batch 6,1.61,34.6\n"));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

// Arithmetic over published shapes: the same digits on every machine.
TEST_F(CliTest, PaperOsdiHasOneFigureAndItsExactPoints) {
  const std::string out = directory_ + "/one";
  const Result result = Run({"paper", "osdi", "--figure", "1", "--out", out}, /*with_server=*/false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(result.out, Not(HasSubstr("Figure 3")));
  EXPECT_EQ(
      Contents(out + "/claims.csv"),
      "figure,claim,section,bound,paper,as_built,origin,basis,deviation,verdict,paper_way\n"
      "1,\"GB/s for 20 tokens/s, DeepSeek-V3 (approximately)\",2.1,near,1000,732.512,computed,predicted,-0.267488,"
      "miss,\n"
      "1,\"billion parameters, DeepSeek-V3 and R1\",4.3,near,671,671.026,computed,exact,3.93729e-05,met,\n"
      "1,\"GB of memory, 24 modules of 48 GB\",4.1,near,1150,1152,computed,exact,0.00173913,met,\n"
      "1,\"GB/s of memory, 24 channels of DDR5-6400\",4.1,near,1228,1228.8,computed,exact,0.000651466,met,\n"
      "1,\"GB of weights, Kimi-K2 (roughly)\",2.1,near,1000,1026.41,computed,predicted,0.0264082,met,\n");
  EXPECT_THAT(Contents(out + "/points.csv"),
              HasSubstr("\n1,Models and devices,models,computed,1026.41,633.742,kimi-k2\n"));
  EXPECT_THAT(Run({"paper", "osdi", "--figure", "2"}, false).status.message(), HasSubstr("--figure"));
}

// The paper's own deviation from the official scores is there, although nothing here has run the models.
TEST_F(CliTest, PaperOsdiCitesTable2) {
  const std::string out = directory_ + "/table2";
  const Result result = Run({"paper", "osdi", "--figure", "table2", "--out", out}, /*with_server=*/false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(result.out, HasSubstr("4 open"));
  EXPECT_EQ(Contents(out + "/points.csv"),
            "figure,chart,curve,origin,x,y,label\n"
            "table2,Quality,paper's node,cited,\"DeepSeek-V3.1, MMLU-Redux\",91,\n"
            "table2,Quality,paper's node,cited,\"DeepSeek-V3.1, MMLU-Pro\",83.41,\n"
            "table2,Quality,paper's node,cited,\"Kimi-K2-Instruct, MMLU-Redux\",91.53,\n"
            "table2,Quality,paper's node,cited,\"Kimi-K2-Instruct, MMLU-Pro\",80,\n"
            "table2,Quality,official,cited,\"DeepSeek-V3.1, MMLU-Redux\",91.8,\n"
            "table2,Quality,official,cited,\"DeepSeek-V3.1, MMLU-Pro\",83.7,\n"
            "table2,Quality,official,cited,\"Kimi-K2-Instruct, MMLU-Redux\",92.7,\n"
            "table2,Quality,official,cited,\"Kimi-K2-Instruct, MMLU-Pro\",81.1,\n");
}

TEST_F(CliTest, PaperOsdiTakesAReportOfTable1) {
  const Result result = Run(
      {"paper", "osdi", "--figure", "table1", "--measured", "loadtest/results/2026-11-21-epyc-zen5-2-cores/bench.json"},
      /*with_server=*/false);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_THAT(result.out, HasSubstr("measured"));
  EXPECT_THAT(result.out, HasSubstr("0 are missed"));
}

TEST_F(CliTest, PaperOsdiNamesWhatIsWrong) {
  const std::string path = directory_ + "/machine.json";
  const auto error = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"paper", "osdi"});
    return std::string(Run(std::move(flags), /*with_server=*/false).status.message());
  };
  EXPECT_THAT(error({"--hardware", path}), HasSubstr("--hardware: "));
  EXPECT_THAT(error({"--cpu", kNode}), HasSubstr("--cpu: "));
  EXPECT_THAT(error({"--measured", kNode}), HasSubstr("--measured "));
  nlohmann::json machine = nlohmann::json::parse(std::ifstream(kNode));
  machine["levels"]["cpu"].erase("cores");
  std::ofstream(path) << machine;
  EXPECT_THAT(error({"--hardware", path, "--figure", "18"}), HasSubstr("'levels.cpu.cores'"));
}

// Both slow each other down, never speed each other up, and the times do not depend on the run.
TEST(SimulateConcurrency, SharesMemoryBetweenAPromptAndDecode) {
  const device::HardwareSpec hardware = ReadHardwareFile(kNode)->built;
  const weights::ModelSpec spec = checkpoint::PublishedModel("deepseek-v3");
  const auto simulate = [&](int64_t tokens, int64_t sequences) {
    return SimulateConcurrency(hardware, spec,
                               {.prompt_tokens = tokens, .sequences = sequences, .context = 10, .steps = 20}, {}, {})
        .value();
  };
  constexpr int64_t kPrompt = 1024;  // bound by the copies
  const ConcurrentSeconds prompt = simulate(kPrompt, 0), decode = simulate(0, 2), both = simulate(kPrompt, 2);
  EXPECT_EQ(prompt.decode, 0);
  EXPECT_EQ(decode.prompt, 0);
  EXPECT_GT(both.prompt, prompt.prompt);
  EXPECT_GT(both.decode, decode.decode);
  EXPECT_LT(both.decode, 1.05 * decode.decode) << "a copy engine takes no more than a core";
  // While decode lasts, copies get at least a core's share of the memory's rate.
  EXPECT_LT(both.prompt, prompt.prompt + both.decode);
  EXPECT_EQ(simulate(kPrompt, 2).prompt, both.prompt);
  EXPECT_EQ(simulate(kPrompt, 2).decode, both.decode);
}

}  // namespace
}  // namespace moestro::cli
