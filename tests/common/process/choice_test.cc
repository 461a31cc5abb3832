#include "common/process/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace moestro {
namespace {

enum class Fruit { kApple, kPear, kFig };
constexpr std::array<Choice<Fruit>, 3> kFruits = {
    {{"apple", Fruit::kApple}, {"pear", Fruit::kPear}, {"fig", Fruit::kFig}}};

// The result of one run of a program with --fruit.
struct Parsed {
  Fruit fruit = Fruit::kPear;
  std::string error = {};
  std::string help = {};
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed parsed;
  ProgramFlags flags("");
  AddChoice(flags, "--fruit", kFruits, parsed.fruit, "to eat");
  parsed.help = flags.Help();
  parsed.error = std::string(flags.Parse(std::move(arguments)).message());
  return parsed;
}

TEST(ChoiceTest, AWordSetsItsValue) {
  EXPECT_EQ(Parse({}).fruit, Fruit::kPear);
  EXPECT_EQ(Parse({"--fruit", "fig"}).fruit, Fruit::kFig);
  EXPECT_STREQ(WordOf(kFruits, Fruit::kFig), "fig");
  EXPECT_THAT(Parse({}).help, testing::HasSubstr("pear")) << "the default";
}

TEST(ChoiceTest, AnyOtherWordIsAnErrorThatNamesTheChoices) {
  const Parsed parsed = Parse({"--fruit", "plum"});
  EXPECT_EQ(parsed.error, "--fruit plum: use apple, pear or fig");
  EXPECT_EQ(parsed.fruit, Fruit::kPear);
}

}  // namespace
}  // namespace moestro
