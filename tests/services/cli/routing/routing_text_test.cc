#include "services/cli/routing/routing_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

namespace moestro::cli {
namespace {

using testing::HasSubstr;

absl::StatusOr<RoutingText> Read(const std::string& text) {
  std::istringstream stream(text);
  return ReadRoutingText(stream, /*experts=*/8);
}

std::string Message(const std::string& text) { return std::string(Read(text).status().message()); }

// Two sequences of three and two tokens, in layers 2 and 4, not in order.
constexpr char kText[] =
    "# seq token layer experts\n"
    "7 0 2 1 0\n"
    "7 0 4 5:0.75 2:0.25\r\n"
    "\n"
    "3,0,2,6,7\n"
    "3\t0\t4\t6\t7\n"
    "7 2 4 0 1\n"
    "7 1 2 0 3\n"
    "7 1 4 0 4\n"
    "7 2 2 0 1\n"
    "3 1 4 1 2\n"
    "3 1 2 1 3\n";

TEST(RoutingText, IsReadInAnyOrder) {
  const RoutingText text = Read(kText).value();
  EXPECT_EQ(text.model.first_moe_layer, 2);
  EXPECT_EQ(text.model.moe_layers, 2);
  EXPECT_EQ(text.model.num_experts, 8);
  EXPECT_EQ(text.model.experts_per_token, 2);
  ASSERT_EQ(text.tokens.size(), 5u);
  EXPECT_EQ(text.tokens[2].sequence, 7u);
  EXPECT_EQ(text.tokens[2].position, 2u);
  EXPECT_EQ(text.tokens[3].sequence, 3u);
  ASSERT_EQ(text.choices.size(), 20u);
  EXPECT_EQ(text.choices[0].expert, 0);
  EXPECT_EQ(text.choices[0].weight, 0.5f);
  EXPECT_EQ(text.choices[2].expert, 2);
  EXPECT_EQ(text.choices[2].weight, 0.25f);
  EXPECT_EQ(text.choices[3].expert, 5);
  EXPECT_EQ(text.choices[19].expert, 2) << "of layer 4, though its line came first";
}

TEST(RoutingText, ErrorsNameTheLine) {
  EXPECT_EQ(Message("# nothing\n"), "no line names experts");
  EXPECT_THAT(Message("1 0 2\n"), HasSubstr("line 1: expected a sequence, a token, a layer and experts"));
  EXPECT_THAT(Message("1 0 0 1 2\nx 0 0 1 2\n"), HasSubstr("line 2: sequence \"x\": expected a number"));
  EXPECT_THAT(Message("1 4294967296 0 1\n"), HasSubstr("token \"4294967296\""));
  EXPECT_THAT(Message("1 0 1024 1\n"), HasSubstr("layer \"1024\": expected a number, 0 to 1023"));
  EXPECT_THAT(Message("1 0 0 8\n"), HasSubstr("expert \"8\": expected a number, 0 to 7"));
  EXPECT_THAT(Message("1 0 0 -1\n"), HasSubstr("expert \"-1\""));
  EXPECT_THAT(Message("1 0 0 1:heavy\n"), HasSubstr("weight \"heavy\""));
  EXPECT_THAT(Message("1 0 0 1:\n"), HasSubstr("weight \"\""));
  EXPECT_THAT(Message("1 0 0 1 2\n1 1 0 1\n"), HasSubstr("line 2: 1 experts; earlier lines have 2"));
  EXPECT_THAT(Message("1 0 0 3 3\n"), HasSubstr("line 1: names expert 3 twice"));
}

TEST(RoutingText, EveryTokenHasEveryLayerOnce) {
  EXPECT_THAT(Message("1 0 0 1\n1 0 1 1\n1 1 0 1\n"),
              HasSubstr("line 3: token 1 of sequence 1 has no experts in layer 1"));
  EXPECT_THAT(Message("1 0 0 1\n1 1 0 1\n1 1 1 1\n"),
              HasSubstr("line 1: token 0 of sequence 1 has no experts in layer 1"));
  EXPECT_THAT(Message("1 0 1 1\n1 1 0 1\n1 1 1 1\n"),
              HasSubstr("line 1: token 0 of sequence 1 has no experts in layer 0"));
  EXPECT_THAT(Message("1 0 0 1\n2 0 0 1\n1 0 0 2\n"), HasSubstr("line 3: token 0 of sequence 1 has twice layer 0"));
  EXPECT_THAT(Message("1 0 0 1\n1 0 0 2\n1 0 1 1\n"), HasSubstr("has twice layer 0"));
}

class PassesTest : public testing::Test {
 protected:
  ~PassesTest() override { std::filesystem::remove(path_); }

  // The positions of each pass, in brackets; those of prompts with a P before.
  std::string Passes(const RoutingPasses& passes) {
    const RoutingText text = Read(kText).value();
    EXPECT_TRUE(WritePasses(text, passes, *model::RoutingTraceWriter::Create(path_, text.model).value()).ok());
    const auto reader = model::RoutingTraceReader::Open(path_).value();
    std::string out;
    model::RoutingStep step;
    while (reader->Next(step).value()) {
      out += step.tokens[0].prompt ? "P[" : "[";
      for (const auto& token : step.tokens) {
        out += " " + std::to_string(token.sequence) + "." + std::to_string(token.position);
      }
      out += " ]";
    }
    return out;
  }

  const std::string path_ = testing::TempDir() + "routing_text_trace-" + std::to_string(getpid());
};

TEST_F(PassesTest, AreOneTokenEachUnlessToldOtherwise) { EXPECT_EQ(Passes({}), "[ 7.0 ][ 7.1 ][ 7.2 ][ 3.0 ][ 3.1 ]"); }

TEST_F(PassesTest, GoTogether) {
  EXPECT_EQ(Passes({.together = 2}), "[ 7.0 3.0 ][ 7.1 3.1 ][ 7.2 ]");
  EXPECT_EQ(Passes({.together = 9}), "[ 7.0 3.0 ][ 7.1 3.1 ][ 7.2 ]");
}

TEST_F(PassesTest, BeginWithPrompts) {
  EXPECT_EQ(Passes({.prompt_tokens = 2, .together = 2}), "P[ 7.0 7.1 ]P[ 3.0 3.1 ][ 7.2 ]");
  EXPECT_EQ(Passes({.prompt_tokens = 1}), "P[ 7.0 ][ 7.1 ][ 7.2 ]P[ 3.0 ][ 3.1 ]");
  EXPECT_EQ(Passes({.prompt_tokens = 5}), "P[ 7.0 7.1 7.2 ]P[ 3.0 3.1 ]");
}

}  // namespace
}  // namespace moestro::cli
