#include <sys/stat.h>

#include <string>

#include "common/access/api_key.h"
#include "common/access/keys_file.h"
#include "common/process/process.h"
#include "tests/services/cli/cli_fixture.h"

namespace moestro::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliTest, AKeyIsPrintedOnceAndItsHashKept) {
  const std::string path = directory_ + "/keys.toml";
  const Result added = Run({"keys", "add", "--file", path, "--name", "alice"}, /*with_server=*/false);
  ASSERT_TRUE(added.status.ok()) << added.status;
  const std::string key = added.out.substr(0, added.out.size() - 1);
  EXPECT_TRUE(access::IsApiKey(key)) << added.out;
  EXPECT_THAT(added.err, AllOf(HasSubstr(path), Not(HasSubstr(key))));
  const auto file = access::ReadKeysFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(access::Matches(file->keys[0].hash, key));

  const Result again = Run({"keys", "add", "--file", path, "--name", "alice"}, false);
  EXPECT_EQ(ExitCode(again.status), 2) << again.status;
  EXPECT_EQ(again.out, "");
}

TEST_F(CliTest, KeysAreListedWithTheirLimits) {
  const std::string path = directory_ + "/keys.toml";
  ASSERT_TRUE(Run({"keys",
                   "add",
                   "--file",
                   path,
                   "--name",
                   "bob",
                   "--weight",
                   "2",
                   "--requests-per-minute",
                   "60",
                   "--tokens-per-minute",
                   "5000",
                   "--burst-tokens",
                   "7000",
                   "--running",
                   "3",
                   "--waiting",
                   "9",
                   "--max-tokens",
                   "512",
                   "--context",
                   "4096",
                   "--cache-scope",
                   "shared",
                   "--endpoints",
                   "generate,admin",
                   "--expires",
                   "2020-01-31"},
                  false)
                  .status.ok());
  const Result listed = Run({"keys", "list", "--file", path}, false);
  EXPECT_TRUE(listed.status.ok()) << listed.status;
  for (const char* cell : {"bob", "generate, admin", "shared", "2020-01-31 00:00 UTC, expired", " 2 ", " 60 ", " 5000 ",
                           " 7000 ", " 3 ", " 9 ", " 512 ", " 4096 "}) {
    EXPECT_THAT(listed.out, HasSubstr(cell));
  }
  EXPECT_THAT(listed.out, Not(HasSubstr("sha256")));
}

TEST_F(CliTest, WrongKeyFlagsAreNamed) {
  const std::string path = directory_ + "/keys.toml";
  const std::pair<const char*, const char*> cases[] = {{"--expires", "tomorrow"},
                                                       {"--weight", "0"},
                                                       {"--running", "-1"},
                                                       {"--endpoints", "chat"},
                                                       {"--cache-scope", "other"}};
  for (const auto& [flag, value] : cases) {
    const Result result = Run({"keys", "add", "--file", path, "--name", "x", flag, value}, false);
    EXPECT_EQ(ExitCode(result.status), 2) << flag;
    EXPECT_THAT(std::string(result.status.message()), HasSubstr(flag));
    struct stat info {};
    EXPECT_NE(stat(path.c_str(), &info), 0);
  }
}

}  // namespace
}  // namespace moestro::cli
