#include "common/process/node_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/process/flags.h"

namespace moestro {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct ParsedSettings {
  NodeOptions node;
  std::vector<std::string> devices;
  std::string error;
};

// Decode's options from a file.
ParsedSettings Read(const std::string& toml, std::vector<std::string> arguments = {}) {
  const std::string path = testing::TempDir() + "node_options_test-" + std::to_string(getpid()) + ".toml";
  std::ofstream(path) << toml;
  ParsedSettings settings;
  ProgramFlags flags("");
  AddNodeOptions(flags, "decode", settings.node);
  flags.Add("--devices", settings.devices);
  arguments.insert(arguments.end(), {"--config", path});
  settings.error = std::string(flags.Parse(std::move(arguments)).message());
  std::filesystem::remove(path);
  return settings;
}

TEST(NodeOptionsFile, OneSectionCounts) {
  const ParsedSettings settings = Read(R"(
    # a comment
    [prefill]
    drain-seconds = 7
    no-such-option = "of prefill"
    [decode]
    instance = 'node "one"'
    drain-seconds = 1_5  # seconds
    devices = ["a", 1, true]
    log-level = "debug")");
  EXPECT_EQ(settings.error, "");
  EXPECT_EQ(settings.node.instance, "node \"one\"");
  EXPECT_EQ(settings.node.drain_seconds, 15);
  EXPECT_THAT(settings.devices, ElementsAre("a", "1", "true"));
  EXPECT_EQ(settings.node.log.level, "debug");
  EXPECT_EQ(settings.node.stall_seconds, NodeOptions().stall_seconds);
}

TEST(NodeOptionsFile, TheCommandLineWins) {
  const ParsedSettings settings = Read("[decode]\ndrain-seconds = 7", {"--drain-seconds", "8"});
  EXPECT_EQ(settings.error, "");
  EXPECT_EQ(settings.node.drain_seconds, 8);
}

TEST(NodeOptionsFile, MayHaveNothingForTheRole) {
  EXPECT_THAT(Read("").error, IsEmpty());
  EXPECT_THAT(Read("[router]\nmode = 'split'").error, IsEmpty());
}

TEST(NodeOptionsFile, WhatNoRoleReadsIsRefusedByName) {
  EXPECT_THAT(Read("[decoder]\ndrain-seconds = 7").error, AllOf(HasSubstr("[decoder]"), HasSubstr("[decode], or")));
  EXPECT_THAT(Read("drain-seconds = 7\n[decode]").error, AllOf(HasSubstr("'drain-seconds'"), HasSubstr("[decode]")));
  EXPECT_THAT(Read("decode = 7").error, HasSubstr("'decode'"));
  EXPECT_THAT(Read("[decode.more]\ndrain-seconds = 7").error, HasSubstr("'more'"));
  EXPECT_THAT(Read("[decode]\ndrain_second = 7").error, HasSubstr("drain_second"));
}

TEST(NodeOptionsFile, WhatIsNotTomlIsRefusedWithItsLine) {
  EXPECT_THAT(Read("[decode]\n\nlog-level = debug").error, HasSubstr("line 3"));
  EXPECT_THAT(Read("[decode]\ndrain-seconds = 7\ndrain-seconds = 8").error, HasSubstr("line 3"));
  EXPECT_THAT(Read("[decode]\ndrain-seconds = \"x\"").error, HasSubstr("drain-seconds"));
}

}  // namespace
}  // namespace moestro
