#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/process/process.h"
#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// With the true shapes: it would take minutes if it measured first.
TEST_F(CliTest, BenchFailsBeforeItMeasures) {
  const Result result = Run({"bench", "--json", directory_ + "/absent/bench.json"}, false);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("--json: cannot write"));
  EXPECT_EQ(result.out, "");
}

// Two files: of the same kind of machine, with a row that fell, of another CPU, and one that is no report.
TEST_F(CliTest, BenchComparesTwoReports) {
  const std::string committed = "loadtest/results/2026-11-22-xeon-amx-2-cores/bench.json";
  const auto run = [&](const json& newer, std::vector<std::string> flags = {}) {
    const std::string path = directory_ + "/newer.json";
    std::ofstream(path) << newer;
    flags.insert(flags.begin(), {"bench", "--compare", committed, "--against", path});
    return Run(std::move(flags), /*with_server=*/false);
  };
  json newer = json::parse(std::ifstream(committed));
  const Result same = run(newer);
  EXPECT_TRUE(same.status.ok()) << same.status;
  EXPECT_THAT(same.out, AllOf(HasSubstr("revision 4a2ffd1"), HasSubstr("0 fell, 0 rose, ")));

  json& row = newer["sections"][6]["rows"][0];
  ASSERT_THAT(row["name"].get<std::string>(), HasSubstr("GQA"));
  for (const char* key : {"median", "min", "max"}) row["ratio"][key] = row["ratio"][key].get<double>() / 2;
  const std::string out = directory_ + "/comparison.json";
  const Result fell = run(newer, {"--json", out});
  EXPECT_EQ(ExitCode(fell.status), 1);
  EXPECT_THAT(fell.status.message(), HasSubstr("1 row fell since " + committed));
  EXPECT_THAT(fell.out, HasSubstr("Fell:\n  attention | GQA, 64 heads over 8 x 128, 32768 tokens, 2 threads: "
                                  "ratio to read bandwidth 0.73 -> 0.36, -50.0 %"));
  EXPECT_EQ(json::parse(std::ifstream(out)).at("fell"), 1);

  newer["machine"]["cpu_model"] = "Other CPU";
  const Result other = run(newer);
  EXPECT_EQ(ExitCode(other.status), 2);
  EXPECT_THAT(other.status.message(), AllOf(HasSubstr("--compare " + committed), HasSubstr("another kind of CPU")));

  EXPECT_THAT(run("cut off").status.message(), HasSubstr("newer.json: not a report of `moestro bench`"));
  EXPECT_EQ(ExitCode(Run({"bench", "--compare", directory_ + "/none.json", "--quick"}, false).status), 2);
  EXPECT_THAT(run(newer, {"--rounds", "5"}).status.message(), HasSubstr("excludes"));
  EXPECT_THAT(Run({"bench", "--against", committed}, false).status.message(), HasSubstr("requires --compare"));
}

// Before minutes of measuring, not after them.
TEST_F(CliTest, BenchRefusesAnotherCpusReportBeforeItMeasures) {
  json older = json::parse(std::ifstream("loadtest/results/2026-11-22-xeon-amx-2-cores/bench.json"));
  older["machine"]["cpu_model"] = "Other CPU";
  const std::string path = directory_ + "/older.json";
  std::ofstream(path) << older;
  const Result result = Run({"bench", "--compare", path}, /*with_server=*/false);
  EXPECT_THAT(result.status.message(), HasSubstr("another kind of CPU"));
  EXPECT_THAT(result.err, Not(HasSubstr("[1/")));
}

}  // namespace
}  // namespace moestro::cli
