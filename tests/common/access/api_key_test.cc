#include "common/access/api_key.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro::access {
namespace {

TEST(ApiKeyTest, EveryKeyIsNewAndHasTheForm) {
  const std::string key = *NewApiKey();
  EXPECT_TRUE(IsApiKey(key)) << key;
  EXPECT_EQ(key.size(), 36u);
  EXPECT_NE(key, *NewApiKey());
}

TEST(ApiKeyTest, OtherTextsAreNoKeys) {
  const std::string key = *NewApiKey();
  for (const std::string& text :
       {std::string(), key.substr(1), key.substr(0, 35), key + "a", "moe_" + std::string(32, ' '),
        "moe_" + std::string(32, '/'), "Moe_" + std::string(32, 'a')}) {
    EXPECT_FALSE(IsApiKey(text)) << text;
  }
}

// The sum is that of `printf %s SALT KEY | sha256sum`, with a salt of sixteen bytes 0x61.
TEST(ApiKeyTest, TheHashIsSha256OfSaltAndKey) {
  const std::string key = "moe_" + std::string(32, 'k');
  const auto hash = ParseKeyHash(
      "sha256:61616161616161616161616161616161:687d11439de240eb9790e6a40a10ad39153e576ee641f4ea5f4358e3ec4c90b6");
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_TRUE(Matches(*hash, key));
  EXPECT_FALSE(Matches(*hash, "moe_" + std::string(31, 'k') + "j"));
}

TEST(ApiKeyTest, EverySaltIsNew) {
  const std::string key = *NewApiKey();
  const KeyHash a = HashApiKey(*NewSalt(), key);
  const KeyHash b = HashApiKey(*NewSalt(), key);
  EXPECT_NE(ToText(a), ToText(b));
  EXPECT_TRUE(Matches(*ParseKeyHash(ToText(a)), key));
  EXPECT_TRUE(Matches(b, key));
  EXPECT_FALSE(Matches(a, *NewApiKey()));
}

TEST(ApiKeyTest, MalformedHashesAreRefused) {
  const std::string good = ToText(HashApiKey(*NewSalt(), "x"));
  ASSERT_TRUE(ParseKeyHash(good).ok());
  for (const std::string& text : {std::string(), std::string("sha256"), good.substr(1), good.substr(0, good.size() - 1),
                                  good + "0", good.substr(0, good.size() - 1) + "g", "sha512" + good.substr(6)}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseKeyHash(text).status())) << text;
  }
}

}  // namespace
}  // namespace moestro::access
