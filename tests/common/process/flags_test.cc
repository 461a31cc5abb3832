#include "common/process/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/process/process.h"

namespace moestro {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The text of the error; empty without one.
std::string Error(ProgramFlags& flags, std::vector<std::string> arguments) {
  return std::string(flags.Parse(std::move(arguments)).message());
}

// What a program prints that is called with one argument, and its exit code.
struct Printed {
  std::optional<int> exit_code;
  std::string out;
  std::string err;
};

Printed Call(ProgramFlags& flags, std::string argument) {
  std::string name = "program";
  char* arguments[] = {name.data(), argument.data(), nullptr};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Printed printed{.exit_code = flags.Parse(2, arguments), .out = {}, .err = {}};
  printed.out = testing::internal::GetCapturedStdout();
  printed.err = testing::internal::GetCapturedStderr();
  return printed;
}

TEST(FlagsTest, ValuesOfEveryKind) {
  ProgramFlags flags("");
  std::string file;
  int count = 1;
  double share = 0.5;
  bool kept = true;
  bool verbose = false;
  std::optional<float> temperature;
  std::optional<uint32_t> most;
  std::vector<int> ids;
  flags.Add("file", file, "");
  flags.Add("--count", count, "");
  flags.Add("--share", share, "");
  flags.Add("--kept", kept, "");
  flags.AddSwitch("--verbose", verbose, "");
  flags.Add("--temperature", temperature, "");
  flags.Add("--most", most, "");
  flags.Add("--ids", ids, "").Delimiter(',');
  EXPECT_EQ(Error(flags, {"a", "--count=-2", "--share", "2e3", "--kept", "false", "--verbose", "--temperature", "0.5",
                          "--ids", "3,4", "5"}),
            "");
  EXPECT_EQ(file, "a");
  EXPECT_EQ(count, -2);
  EXPECT_EQ(share, 2000);
  EXPECT_FALSE(kept);
  EXPECT_TRUE(verbose);
  EXPECT_EQ(temperature, 0.5F);
  EXPECT_EQ(most, std::nullopt);
  EXPECT_THAT(ids, ElementsAre(3, 4, 5));
  EXPECT_EQ(Error(flags, {"--count", "x"}), "Could not convert: --count = x");
  EXPECT_EQ(Error(flags, {"--none"}), "The following argument was not expected: --none");
}

TEST(FlagsTest, AWrongValueIsAnErrorThatSaysWhatIsRight) {
  ProgramFlags flags("");
  int threads = 0;
  double share = 0;
  double seconds = 0;
  double pause = 0;
  std::vector<std::string> words;
  flags.Add("--threads", threads, "").Range(1, 64);
  flags.Add("--share", share, "").Range(0.0, 1.0);
  flags.Add("--seconds", seconds, "").Positive();
  flags.Add("--pause", pause, "").NonNegative();
  flags.Add("--words", words, "").Delimiter(',').OneOf({"own", "shared"});
  EXPECT_EQ(Error(flags, {"--threads", "65"}), "--threads: Value 65 not in range 1 to 64");
  EXPECT_EQ(Error(flags, {"--threads", "1.5"}), "--threads: Value 1.5 not in range 1 to 64");
  EXPECT_EQ(Error(flags, {"--share", "1.5"}), "--share: Value 1.5 not in range 0.000000 to 1.000000");
  EXPECT_THAT(Error(flags, {"--seconds", "0"}), HasSubstr("--seconds: Value 0 not in range"));
  EXPECT_THAT(Error(flags, {"--pause", "-1"}), HasSubstr("--pause: Value -1 not in range"));
  EXPECT_EQ(Error(flags, {"--words", "own,none"}), "--words: none not in {own,shared}");
  EXPECT_EQ(Error(flags, {"--threads", "64", "--share", "1", "--seconds", "0.1", "--pause", "0", "--words", "own"}),
            "");
  EXPECT_THAT(flags.Help(), AllOf(HasSubstr("INT in [1 - 64]"), HasSubstr("FLOAT in [0 - 1]"),
                                  HasSubstr("FLOAT:POSITIVE"), HasSubstr("TEXT:{own,shared}")));
}

TEST(FlagsTest, NanIsInNoRange) {
  for (const std::string nan : {"nan", "NaN", "-nan"}) {
    double value = 1;
    ProgramFlags flags("");
    flags.Add("--range", value).Range(0.0, 2.0);
    flags.Add("--positive", value).Positive();
    flags.Add("--natural", value).NonNegative();
    for (const std::string name : {"--range", "--positive", "--natural"}) {
      EXPECT_THAT(Error(flags, {name + "=" + nan}), AllOf(HasSubstr(name), HasSubstr(nan)));
    }
  }
}

TEST(FlagsTest, BytesMayHaveAUnitWhichIsAPowerOf1024) {
  ProgramFlags flags("");
  int64_t bytes = 0;
  flags.Add("--memory", bytes, "").AsBytes();
  for (const char* eight : {"8589934592", "8GB", "8GiB", "8 g"}) {
    EXPECT_EQ(Error(flags, {"--memory", eight}), "");
    EXPECT_EQ(bytes, int64_t{8} << 30) << eight;
  }
  EXPECT_THAT(Error(flags, {"--memory", "8 bits"}), HasSubstr("bits"));
}

TEST(FlagsTest, FlagsThatNeedOrExcludeOthers) {
  ProgramFlags flags("");
  std::string model;
  std::string suite;
  std::string shots;
  bool plain = false;
  bool json = false;
  flags.Add("--model", model, "").Required();
  const Flag named = flags.Add("--suite", suite, "");
  flags.Add("--shots", shots, "").Needs(named);
  flags.AddSwitch("--plain", plain, "").Excludes(named);
  flags.AddSwitch("--json", json, "");
  flags.Find("--json").Excludes(flags.Find("--plain"));
  EXPECT_EQ(Error(flags, {}), "--model is required");
  EXPECT_EQ(Error(flags, {"--model", "a", "--shots", "b"}), "--shots requires --suite");
  EXPECT_EQ(Error(flags, {"--model", "a", "--shots", "b", "--suite", "c"}), "");
  EXPECT_THAT(Error(flags, {"--model", "a", "--suite", "c", "--plain"}), HasSubstr("excludes"));
  EXPECT_THAT(Error(flags, {"--model", "a", "--json", "--plain"}), HasSubstr("excludes"));
}

TEST(FlagsTest, AGroupMayWantOneOfItsFlags) {
  ProgramFlags flags("");
  std::string text;
  std::string file;
  FlagSet group = flags.AddGroup("input", "Exactly one of");
  group.Add("--text", text, "");
  group.Add("--file", file, "");
  group.RequireFlags(1, 1);
  EXPECT_EQ(Error(flags, {"--text", "a"}), "");
  EXPECT_EQ(text, "a");
  EXPECT_THAT(Error(flags, {}), HasSubstr("Exactly 1 option from [--text,--file] is required"));
  EXPECT_THAT(Error(flags, {"--text", "a", "--file", "b"}), HasSubstr("--text"));
  EXPECT_THAT(flags.Help(), HasSubstr("Exactly one of"));
  flags.Find("--text").Needs(flags.Find("--file"));
  EXPECT_EQ(Error(flags, {"--text", "a"}), "--text requires --file");
}

TEST(FlagsTest, TheEnvironmentIsUsedIfTheFlagIsNotGiven) {
  const char* variable = "MOESTRO_FLAGS_TEST";
  ProgramFlags flags("");
  std::string server = "default";
  flags.Add("--server", server, "").FromEnvironment(variable);
  setenv(variable, "environment", 1);
  EXPECT_EQ(Error(flags, {}), "");
  EXPECT_EQ(server, "environment");
  EXPECT_EQ(Error(flags, {"--server", "argument"}), "");
  EXPECT_EQ(server, "argument");
  unsetenv(variable);
  EXPECT_THAT(flags.Help(), AllOf(HasSubstr("default"), HasSubstr(variable)));
}

TEST(FlagsTest, AFunctionTakesAValueOrSaysWhatIsWrong) {
  ProgramFlags flags("");
  std::string taken;
  const auto take = [&](const std::string& value) {
    taken = value;
    return value == "bad" ? absl::InvalidArgumentError("--word bad: use good") : absl::OkStatus();
  };
  flags.AddFunction("--word", "fine", take, "");
  EXPECT_EQ(Error(flags, {}), "");
  EXPECT_THAT(taken, IsEmpty());
  EXPECT_EQ(Error(flags, {"--word", "good"}), "");
  EXPECT_EQ(taken, "good");
  EXPECT_EQ(Error(flags, {"--word", "bad"}), "--word bad: use good");
  EXPECT_THAT(flags.Help(), HasSubstr("TEXT=fine"));
}

TEST(FlagsTest, TheCommandThatWasNamedKnowsIt) {
  ProgramFlags flags("");
  flags.RequireCommands(1, 1);
  flags.AllowAfterCommands();
  int seed = 0;
  int rate = 0;
  flags.Add("--seed", seed, "");
  FlagSet add = flags.AddCommand("add", "");
  FlagSet list = flags.AddCommand("list", "");
  list.Add("--rate", rate, "");
  EXPECT_EQ(Error(flags, {"list", "--rate", "2", "--seed", "3"}), "");
  EXPECT_TRUE(list.WasGiven());
  EXPECT_FALSE(add.WasGiven());
  EXPECT_EQ(rate, 2);
  EXPECT_EQ(seed, 3);
  EXPECT_EQ(Error(flags, {}), "A subcommand is required");
  EXPECT_THAT(Error(flags, {"add", "--rate", "2"}), HasSubstr("not expected: 2 --rate"));
}

TEST(FlagsTest, AFileSetsFlagsThatArgumentsDoNot) {
  const std::string path = testing::TempDir() + "flags_test-" + std::to_string(getpid());
  std::ofstream(path) << "3";
  ProgramFlags flags("");
  std::string key = "--ids";
  std::vector<int> ids;
  flags.Add("--ids", ids, "");
  flags.AddFile("--config", "", [&](std::istream& file) -> absl::StatusOr<std::vector<FlagSetting>> {
    std::string value;
    file >> value;
    if (key.empty()) return absl::InvalidArgumentError("--config: no key");
    return std::vector<FlagSetting>{{key, {value, "4"}}};
  });
  key = "ids";
  EXPECT_EQ(Error(flags, {"--config", path}), "");
  EXPECT_THAT(ids, ElementsAre(3, 4));
  EXPECT_EQ(Error(flags, {"--config", path, "--ids", "5"}), "");
  EXPECT_THAT(ids, ElementsAre(5));
  key = "other";
  EXPECT_THAT(Error(flags, {"--config", path}), HasSubstr("other"));
  key = "";
  EXPECT_EQ(Error(flags, {"--config", path}), "--config: no key");
  std::filesystem::remove(path);
  EXPECT_THAT(Error(flags, {"--config", path}), HasSubstr(path));
}

TEST(FlagsTest, HelpAndVersionArePrintedAndEndWell) {
  ProgramFlags flags("What it does.");
  double seconds = 2.5;
  std::string file = "a";
  flags.AddVersion("program 1.2.3");
  flags.Add("--seconds", seconds, "How long").TypeName("SECONDS");
  flags.Add("--file", file, "Which").HelpText("FILE");
  flags.Footer("The end.");
  const Printed help = Call(flags, "--help");
  EXPECT_EQ(help.exit_code, kExitOk);
  EXPECT_THAT(help.out, AllOf(HasSubstr("What it does.\n"), HasSubstr("--seconds SECONDS=2.5"),
                              HasSubstr("--file FILE"), HasSubstr("\nThe end.")));
  EXPECT_THAT(help.err, IsEmpty());
  const Printed version = Call(flags, "--version");
  EXPECT_EQ(version.exit_code, kExitOk);
  EXPECT_EQ(version.out, "program 1.2.3\n");
}

TEST(FlagsTest, AWrongArgumentIsToldOnStderr) {
  ProgramFlags flags("");
  int count = 0;
  flags.Add("--count", count, "");
  const Printed wrong = Call(flags, "--none");
  EXPECT_EQ(wrong.exit_code, kExitUsage);
  EXPECT_THAT(wrong.out, IsEmpty());
  EXPECT_THAT(wrong.err, HasSubstr("--none"));
  EXPECT_EQ(Call(flags, "--count=3").exit_code, std::nullopt);
  EXPECT_EQ(count, 3);
}

}  // namespace
}  // namespace moestro
