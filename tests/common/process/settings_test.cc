#include "common/process/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/process/flags.h"
#include "common/process/node_options.h"
#include "common/process/process.h"

namespace moestro {

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.name << " = " << setting.value << " # " << WordOf(setting.origin) << ": " << setting.detail;
}

namespace {

using Origin = Setting::Origin;
using testing::Contains;
using testing::ElementsAre;
using testing::SizeIs;

auto Is(const std::string& name, const std::string& value, Origin origin, const std::string& detail) {
  return testing::AllOf(testing::Field(&Setting::name, name), testing::Field(&Setting::value, value),
                        testing::Field(&Setting::origin, origin), testing::Field(&Setting::detail, detail));
}

// The settings of a role with some flags of its own, started with these arguments.
std::vector<Setting> SettingsOf(std::vector<std::string> arguments) {
  NodeOptions node;
  ProgramFlags flags("");
  AddNodeOptions(flags, "decode", node);
  int batch = 0;
  int64_t bytes = 0;
  bool keep = false;
  std::vector<int> ids;
  flags.Add("--batch", batch, "").Because("measured at the start");
  flags.Add("--bytes", bytes, "").AsBytes();
  flags.AddSwitch("--keep", keep, "");
  flags.Add("--ids", ids, "").Delimiter(',');
  std::vector<char*> argv;
  arguments.insert(arguments.begin(), "role");
  for (std::string& argument : arguments) argv.push_back(argument.data());
  EXPECT_EQ(RunRole(flags, static_cast<int>(argv.size()), argv.data(), "decode", node, [] { return absl::OkStatus(); }),
            kExitOk);
  return node.settings->List();
}

TEST(SettingsTest, ConstantsHaveTheirReason) {
  const std::vector<Setting> settings = SettingsOf({});
  EXPECT_THAT(settings, Contains(Is("batch", "0", Origin::kConstant, "measured at the start")));
  EXPECT_THAT(settings, Contains(Is("keep", "false", Origin::kConstant, "")));
  EXPECT_THAT(settings, Contains(Is("ids", "", Origin::kConstant, "")));
  EXPECT_THAT(settings, Contains(testing::Field(&Setting::name, "config")));
  EXPECT_THAT(settings, testing::Not(Contains(testing::Field(&Setting::name, "help"))));
  EXPECT_THAT(settings, testing::Not(Contains(testing::Field(&Setting::name, "version"))));
}

TEST(SettingsTest, WhatIsSetNamesItsPlace) {
  const std::string file = testing::TempDir() + "settings-" + std::to_string(getpid()) + ".toml";
  std::ofstream(file) << "[decode]\nbatch = 4\n\nbytes = \"2KB\"  # two\nids = [1, 2]\n";
  const std::vector<Setting> settings = SettingsOf({"--config", file, "--batch", "8", "--keep"});
  EXPECT_THAT(settings, Contains(Is("batch", "8", Origin::kSet, "command line"))) << "an argument goes first";
  EXPECT_THAT(settings, Contains(Is("bytes", "2048", Origin::kSet, file + ":4")));
  EXPECT_THAT(settings, Contains(Is("ids", "1,2", Origin::kSet, file + ":5")));
  EXPECT_THAT(settings, Contains(Is("keep", "true", Origin::kSet, "command line")));
  unlink(file.c_str());
}

TEST(SettingsTest, ARoleCompletesWhatItIsLeft) {
  Settings settings;
  settings.Assign(
      {{"batch", "0", Origin::kConstant, "measured at the start"}, {"rows", "0", Origin::kSet, "a.toml:3"}});
  settings.Measure("batch", "24", "a step of 24 takes 0.24 s");
  settings.Derive("rows", "512", "2 x 256");
  EXPECT_THAT(settings.List(), ElementsAre(Is("batch", "24", Origin::kMeasured, "a step of 24 takes 0.24 s"),
                                           Is("rows", "512", Origin::kDerived, "2 x 256; a.toml:3 says 0")));
}

}  // namespace
}  // namespace moestro
