#include "common/process/server_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/process/flags.h"

namespace moestro {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct ServerFlags {
  absl::Status status;
  ServerOptions options;
};

ServerFlags ParseServer(std::vector<std::string> arguments) {
  ServerFlags parsed;
  ProgramFlags program("");
  AddServerOptions(program, parsed.options);
  parsed.status = program.Parse(std::move(arguments));
  return parsed;
}

TEST(ServerOptionsTest, TellWhereAndHowLong) {
  EXPECT_EQ(ParseServer({}).options.connect_seconds, kConnectSeconds);
  const ServerFlags parsed = ParseServer({"--server", "unix:/a", "--connect-timeout", "0.5"});
  EXPECT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_EQ(parsed.options.address, "unix:/a");
  EXPECT_EQ(parsed.options.connect_seconds, 0.5);
}

TEST(ServerOptionsTest, BadTimesAreRefusedByName) {
  for (const std::string bad : {"0", "-1", "3601", "1e10", "nan", "inf", "soon", ""}) {
    const ServerFlags parsed = ParseServer({"--connect-timeout", bad});
    EXPECT_THAT(std::string(parsed.status.message()), HasSubstr("--connect-timeout")) << bad;
  }
}

TEST(ServerOptionsTest, HelpSaysTheDefaultAndWhatFailsAtOnce) {
  ProgramFlags program("");
  ServerOptions options;
  AddServerOptions(program, options);
  EXPECT_THAT(program.Help(),
              AllOf(HasSubstr("--connect-timeout SECONDS"), HasSubstr("=10"), HasSubstr("fails at once")));
}

}  // namespace
}  // namespace moestro
