#include "common/access/keys_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace moestro::access {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Hash() { return absl::StrCat("hash = \"", ToText(HashApiKey(*NewSalt(), "x")), "\"\n"); }

std::string Key(const std::string& settings) {
  return absl::StrCat("[[key]]\nname = \"alice\"\n", Hash(), settings, "\n");
}

class KeysFileTest : public ::testing::Test {
 protected:
  ~KeysFileTest() override { std::filesystem::remove(path_); }

  void Write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  mode_t Mode() const {
    struct stat info {};
    EXPECT_EQ(stat(path_.c_str(), &info), 0);
    return info.st_mode & 0777;
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "keys_file_", getpid(), ".toml");
};

TEST_F(KeysFileTest, EverySettingIsRead) {
  const auto file = ParseKeysFile(absl::StrCat("secret = \"", std::string(64, 'a'), "\"\n", Key(R"(
weight = 2.5
requests-per-minute = 1
tokens-per-minute = 2
burst-tokens = 3
running = 4
waiting = 5
max-tokens = 6
context = 7
cache-scope = "shared"
endpoints = ["score", "admin"]
expires = 2027-01-02T03:04:05+01:00)")));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->secret, std::string(64, 'a'));
  ASSERT_EQ(file->keys.size(), 1u);
  const KeyEntry& key = file->keys[0];
  EXPECT_EQ(key.name, "alice");
  EXPECT_TRUE(Matches(key.hash, "x"));
  EXPECT_EQ(key.weight, 2.5);
  EXPECT_EQ(key.limits.requests_per_minute, 1);
  EXPECT_EQ(key.limits.tokens_per_minute, 2);
  EXPECT_EQ(key.limits.burst_tokens, 3);
  EXPECT_EQ(key.limits.running, 4);
  EXPECT_EQ(key.limits.waiting, 5);
  EXPECT_EQ(key.limits.max_tokens, 6);
  EXPECT_EQ(key.limits.context, 7);
  EXPECT_TRUE(key.shared_cache);
  EXPECT_TRUE(key.allows(Endpoint::kScore) && key.allows(Endpoint::kAdmin));
  EXPECT_FALSE(key.allows(Endpoint::kGenerate) || key.allows(Endpoint::kTokenize));
  EXPECT_EQ(key.expires, absl::FromCivil(absl::CivilSecond(2027, 1, 2, 2, 4, 5), absl::UTCTimeZone()));
}

TEST_F(KeysFileTest, ADayBeginsAtMidnightUtc) {
  const auto file = ParseKeysFile(Key("expires = 2027-01-02"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->keys[0].expires, absl::FromCivil(absl::CivilDay(2027, 1, 2), absl::UTCTimeZone()));
}

TEST_F(KeysFileTest, AKeyHasNoLimitsUnlessItSaysSo) {
  const auto file = ParseKeysFile(Key(""));
  ASSERT_TRUE(file.ok()) << file.status();
  const KeyEntry& key = file->keys[0];
  EXPECT_EQ(key.weight, 1);
  EXPECT_FALSE(key.limits.requests_per_minute || key.limits.tokens_per_minute || key.limits.running ||
               key.limits.waiting || key.limits.max_tokens || key.limits.context);
  EXPECT_FALSE(key.shared_cache);
  EXPECT_TRUE(key.allows(Endpoint::kGenerate) && key.allows(Endpoint::kScore) && key.allows(Endpoint::kTokenize));
  EXPECT_FALSE(key.allows(Endpoint::kAdmin));
  EXPECT_EQ(key.expires, absl::InfiniteFuture());
}

TEST_F(KeysFileTest, ErrorsNameTheKeyAndTheSetting) {
  const std::pair<std::string, std::string> cases[] = {
      {"[[key", "line 1"},
      {"other = 1", "'other'"},
      {"secret = \"short\"", "secret"},
      {"key = 1", "'key'"},
      {"[[key]]\n" + Hash(), "line 1: key: name"},
      {"[[key]]\nname = \"a b\"\n" + Hash(), "name 'a b'"},
      {"[[key]]\nname = \"operator\"\n" + Hash(), "name 'operator'"},
      {"[[key]]\nname = \"alice\"\n", "key 'alice': has no hash"},
      {"[[key]]\nname = \"alice\"\nhash = \"sha256:1:2\"\n", "key 'alice': hash"},
      {Key("") + Key(""), "key 'alice': appears twice"},
      {Key("colour = 1"), "key 'alice': colour"},
      {Key("weight = 0"), "weight"},
      {Key("weight = -1"), "weight"},
      {Key("weight = nan"), "weight"},
      {Key("running = 0"), "running"},
      {Key("running = \"4\""), "running"},
      {Key("tokens-per-minute = 1.5"), "tokens-per-minute"},
      {Key("cache-scope = \"all\""), "cache-scope"},
      {Key("endpoints = []"), "endpoints"},
      {Key("endpoints = [\"chat\"]"), "endpoints"},
      {Key("expires = \"2027-01-02\""), "expires"},
      {Key("expires = 2027-01-02T03:04:05"), "expires"},
  };
  for (const auto& [text, part] : cases) {
    const absl::Status status = ParseKeysFile(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST_F(KeysFileTest, TooManyKeysAreRefused) {
  std::string text;
  for (size_t i = 0; i <= kMaxKeys; ++i) absl::StrAppend(&text, "[[key]]\nname = \"k", i, "\"\n");
  EXPECT_THAT(std::string(ParseKeysFile(text).status().message()), HasSubstr("has 1025 keys, and may have 1024"));
}

TEST_F(KeysFileTest, AFileThatOthersReadIsRefused) {
  for (const mode_t mode : {0644, 0604, 0602, 0620}) {
    Write(Key(""), mode);
    const absl::Status status = ReadKeysFile(path_).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path_), HasSubstr("chmod 600")));
  }
  for (const mode_t mode : {0600, 0640, 0400}) {
    std::filesystem::remove(path_);
    Write(Key(""), mode);
    EXPECT_TRUE(ReadKeysFile(path_).ok()) << ReadKeysFile(path_).status();
  }
}

TEST_F(KeysFileTest, AFileIsNeeded) {
  EXPECT_TRUE(absl::IsNotFound(ReadKeysFile(path_).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadKeysFile(::testing::TempDir()).status()));
  Write("# none yet\n");
  EXPECT_THAT(std::string(ReadKeysFile(path_).status().message()), HasSubstr("moestro keys add"));
}

TEST_F(KeysFileTest, AddedKeysAreReadAgain) {
  KeyEntry entry;
  entry.name = "alice";
  ASSERT_EQ(AddKey(path_, entry, "x"), absl::OkStatus());
  EXPECT_EQ(Mode(), 0600u);
  const std::string secret = ReadKeysFile(path_)->secret;
  EXPECT_EQ(secret.size(), 64u);

  entry.name = "bob";
  entry.weight = 0.5;
  entry.limits.running = 3;
  entry.limits.tokens_per_minute = 1000;
  entry.shared_cache = true;
  entry.endpoints = {true, false, false, true};
  entry.expires = absl::FromCivil(absl::CivilSecond(2030, 5, 6, 7, 8, 9), absl::UTCTimeZone());
  ASSERT_EQ(AddKey(path_, entry, "y"), absl::OkStatus());
  const auto file = ReadKeysFile(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->secret, secret);
  ASSERT_EQ(file->keys.size(), 2u);
  EXPECT_TRUE(Matches(file->keys[0].hash, "x"));
  const KeyEntry& bob = file->keys[1];
  EXPECT_EQ(bob.name, "bob");
  EXPECT_TRUE(Matches(bob.hash, "y"));
  EXPECT_EQ(bob.hash.salt, file->keys[0].hash.salt);
  EXPECT_EQ(bob.weight, 0.5);
  EXPECT_EQ(bob.limits.running, 3);
  EXPECT_EQ(bob.limits.tokens_per_minute, 1000);
  EXPECT_FALSE(bob.limits.waiting);
  EXPECT_TRUE(bob.shared_cache);
  EXPECT_EQ(bob.endpoints, entry.endpoints);
  EXPECT_EQ(bob.expires, entry.expires);
}

TEST_F(KeysFileTest, AddingKeepsWhatTheFileHolds) {
  Write("# by hand\n" + Key("running = 2  # few"), 0640);
  KeyEntry entry;
  entry.name = "bob";
  ASSERT_EQ(AddKey(path_, entry, "y"), absl::OkStatus());
  EXPECT_THAT(Text(), AllOf(HasSubstr("# by hand\n"), HasSubstr("running = 2  # few")));
  EXPECT_EQ(Mode(), 0640u);
}

TEST_F(KeysFileTest, NoKeyIsLostOfThoseAddedAtOnce) {
  constexpr int kKeys = 20;
  std::vector<std::thread> threads;
  for (int i = 0; i < kKeys; ++i) {
    threads.emplace_back([this, i] {
      KeyEntry entry;
      entry.name = absl::StrCat("key", i);
      EXPECT_EQ(AddKey(path_, entry, "y"), absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ReadKeysFile(path_)->keys.size(), kKeys);
}

TEST_F(KeysFileTest, ALinkStaysALink) {
  Write(Key(""));
  const std::string link = path_ + ".link";
  std::filesystem::create_symlink(path_, link);
  KeyEntry entry;
  entry.name = "bob";
  EXPECT_EQ(AddKey(link, entry, "y"), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::filesystem::remove(link);
  EXPECT_EQ(ReadKeysFile(path_)->keys.size(), 2u);
}

TEST_F(KeysFileTest, ARefusedKeyChangesNothing) {
  Write(Key(""));
  const std::string before = Text();
  KeyEntry entry;
  entry.name = "alice";
  EXPECT_THAT(std::string(AddKey(path_, entry, "y").message()), HasSubstr("has a key 'alice' already"));
  entry.name = "a\"b";
  EXPECT_TRUE(absl::IsInvalidArgument(AddKey(path_, entry, "y")));
  EXPECT_EQ(Text(), before);
  Write("[[key", 0600);
  entry.name = "bob";
  EXPECT_TRUE(absl::IsInvalidArgument(AddKey(path_, entry, "y")));
  EXPECT_EQ(Text(), "[[key");
}

}  // namespace
}  // namespace moestro::access
