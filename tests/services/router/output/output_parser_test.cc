// When deltas come, and what no text may do. recorded_outputs_test.cc has the answers of models.
#include "services/router/output/output_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tests/services/router/output/joined_output.h"

namespace moestro::router {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::unique_ptr<OutputParser> Hermes(ParserOptions options = {.parse_tools = true}) {
  static const OutputFormat kFormat = FindOutputFormat("qwen3_moe", "<tool_call></think>", {"<|im_end|>"});
  return NewParser(kFormat, options);
}

TEST(OutputParserTest, TextThatCannotBecomeAMarkerGoesOutAtOnce) {
  const auto parser = Hermes();
  EXPECT_EQ(parser->Push("a <b> c").content, "a <b> c");
  EXPECT_EQ(parser->Push(" <tool").content, "");
  EXPECT_EQ(parser->Push("box> d").content, " <toolbox> d");
  EXPECT_EQ(parser->Push("e\n\n").content, "e");
  EXPECT_EQ(parser->Push("f").content, "\n\nf");
}

TEST(OutputParserTest, CallsAfterTheFirstAreDroppedWhereOneIsWanted) {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>\n";
  const auto several = Parse(*Hermes(), {call + call});
  EXPECT_EQ(several.calls.size(), 2u);
  const auto one = Parse(*Hermes({.parse_tools = true, .several_calls = false}), {call + call, call});
  ASSERT_EQ(one.calls.size(), 1u);
  EXPECT_EQ(one.calls[0], several.calls[0]);
  EXPECT_EQ(one.content, "");
}

TEST(OutputParserTest, WithoutToolsWhiteSpaceGoesOutAtOnce) {
  const auto parser = Hermes({});
  EXPECT_EQ(parser->Push("a\n").content, "a\n");
  EXPECT_EQ(parser->Push(" <tool_call>").content, " <tool_call>");
}

TEST(OutputParserTest, ReasoningGoesOutWhileItComes) {
  const auto parser = Hermes();
  EXPECT_TRUE(parser->Push("<thi").empty());
  EXPECT_TRUE(parser->Push("nk>\n").empty());
  EXPECT_EQ(parser->Push("Hm, ").reasoning, "Hm,");
  EXPECT_EQ(parser->Push("so </").reasoning, " so");
  EXPECT_EQ(parser->Push("thin").reasoning, "");
  EXPECT_EQ(parser->Push("g>").reasoning, " </thing>");
  EXPECT_EQ(parser->Push("</think>x").content, "x");
}

TEST(OutputParserTest, ArgumentsGoOutWhileTheyCome) {
  const auto parser = Hermes();
  EXPECT_TRUE(parser->Push("<tool_call>\n{\"name\": \"f\", \"argum").empty());
  const OutputDelta first = parser->Push("ents\": {\"a\": ");
  ASSERT_EQ(first.tool_calls.size(), 1u);
  EXPECT_EQ(first.tool_calls[0].name, "f");
  EXPECT_EQ(first.tool_calls[0].arguments, "{\"a\":");
  const OutputDelta second = parser->Push("\"x");
  ASSERT_EQ(second.tool_calls.size(), 1u);
  EXPECT_EQ(second.tool_calls[0].name, "");
  EXPECT_EQ(second.tool_calls[0].arguments, " \"x");
  EXPECT_EQ(parser->Push("\"}, ").tool_calls.at(0).arguments, "\"}");
  EXPECT_TRUE(parser->Push("}</tool_call>").empty());
}

TEST(OutputParserTest, ProseAboutAMarkerIsHeldNoLongerThanNeeded) {
  EXPECT_EQ(Hermes()->Push("<tool_call> is").content, "<tool_call> is");
  const OutputFormat glm = FindOutputFormat("glm4_moe", "<tool_call><arg_key>", {});
  EXPECT_EQ(NewParser(glm, {.parse_tools = true})->Push("<tool_call> is a").content, "<tool_call> is a");
}

TEST(OutputParserTest, WhereAGrammarBindsCallsOnlyThoseInTheirTagsCount) {
  const ParserOptions bound{.parse_tools = true, .tools = R"([{"function": {"name": "f"}}])", .lost_tags = false};
  const std::string call = "{\"name\": \"f\"}</tool_call>";
  EXPECT_EQ(Parse(*Hermes(bound), {call}).content, call);
  const std::string thought = "Hm. <tool_call>" + call;
  EXPECT_EQ(Parse(*Hermes(bound), {"<think>" + thought}).reasoning, thought);
  EXPECT_EQ(Parse(*Hermes(bound), {"<tool_call>" + call}).calls.size(), 1u);
}

// There a missing tag is the end of the answer, and what looks like one is a part of the value.
TEST(OutputParserTest, WhereAGrammarBindsCallsNoTagIsMissing) {
  const OutputFormat coder = FindOutputFormat("qwen3_moe", "<function=", {});
  const ParserOptions bound{
      .parse_tools = true,
      .tools = R"([{"function": {"name": "f", "parameters": {"properties": {"a": {}, "b": {}}}}}])",
      .lost_tags = false};
  const std::string begin = "<tool_call>\n<function=f>\n<parameter=a>\nx\n";
  const std::string end = "</parameter>\n</function>\n</tool_call>";
  const JoinedOutput whole =
      Parse(*NewParser(coder, bound), {begin + "<parameter=b>\n</function>\n</tool_call>\n" + end});
  ASSERT_EQ(whole.calls.size(), 1u);
  EXPECT_EQ(whole.calls[0].arguments, R"({"a": "x\n<parameter=b>\n</function>\n</tool_call>"})");
  EXPECT_EQ(Parse(*NewParser(coder, bound), {begin + "</parameter>"}).calls.size(), 0u);
  const OutputFormat glm = FindOutputFormat("glm4_moe", "<arg_key>", {});
  EXPECT_EQ(Parse(*NewParser(glm, bound), {"<tool_call>f\n<arg_key>a</arg_key>x</arg_value></tool_call>"}).calls.size(),
            0u);
}

TEST(OutputParserTest, ThoughtsAboutACallGoOutWhenItsEndIsKnown) {
  const auto parser = Hermes({.parse_tools = true, .tools = R"([{"function": {"name": "f"}}])"});
  EXPECT_EQ(parser->Push("<think>Hm, <tool_call> is").reasoning, "Hm, <tool_call> is");
  EXPECT_EQ(parser->Push(" <tool_call>{\"name\": \"f\"}</tool_call>").reasoning, "");
  EXPECT_EQ(parser->Push(" a").reasoning, " <tool_call>{\"name\": \"f\"}</tool_call> a");
}

TEST(OutputParserTest, IdsDifferByCallAndBySeed) {
  const std::string calls = "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"f\"}</tool_call>";
  std::set<std::string> ids;
  for (const uint64_t seed : {0, 1, 2}) {
    for (const auto& call : Parse(*Hermes({.parse_tools = true, .id_seed = seed}), {calls}).calls) {
      EXPECT_THAT(call.id, MatchesRegex("call_[0-9A-Za-z]{24}"));
      ids.insert(call.id);
    }
  }
  EXPECT_EQ(ids.size(), 6u);
}

TEST(OutputParserTest, MistralsIdsHaveNineCharacters) {
  const OutputFormat mistral = FindOutputFormat("mixtral", "[TOOL_CALLS]", {});
  const JoinedOutput output =
      Parse(*NewParser(mistral, {.parse_tools = true}), {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]"});
  ASSERT_EQ(output.calls.size(), 1u);
  EXPECT_THAT(output.calls[0].id, MatchesRegex("[0-9A-Za-z]{9}"));
}

// A model that ends after a value has forgotten the tags. One that was cut there had more to say.
TEST(OutputParserTest, ACallThatWasCutIsNone) {
  const OutputFormat glm = FindOutputFormat("glm4_moe", "<arg_key>", {});
  const char* tools = R"([{"type": "function", "function": {"name": "wr", "parameters": {"type": "object", "properties":
                         {"path": {"type": "string"}, "text": {"type": "string"}}}}}])";
  const std::string begun = "<tool_call>wr\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>";
  for (const char* rest : {"", "\n", "\n<", "\n</tool"}) {
    const auto calls = [&](FinishReason reason) {
      return Parse(*NewParser(glm, {.parse_tools = true, .tools = tools}), {begun + rest}, reason).calls.size();
    };
    EXPECT_EQ(calls(FinishReason::kStop), 1u) << rest;
    EXPECT_EQ(calls(FinishReason::kLength), 0u) << rest;
  }
  const std::string whole = begun + "\n</tool_call>";
  EXPECT_EQ(Parse(*NewParser(glm, {.parse_tools = true, .tools = tools}), {whole}, FinishReason::kLength).calls.size(),
            1u);
}

TEST(OutputParserTest, ToolsThatAreNoJsonAreIgnored) {
  const OutputFormat glm = FindOutputFormat("glm4_moe", "<arg_key>", {});
  for (const char* tools :
       {"", "{", "5", "[5, {\"function\": 5}, {\"function\": {\"name\": 5}}]",
        "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": [1]}}}]",
        "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"k\": {\"type\": 5}}}}}]",
        "[{\"function\": {\"name\": \"f\", \"parameters\": [{}]}}]"}) {
    const std::string text = "<tool_call>f<arg_key>k</arg_key><arg_value>1</arg_value></tool_call>";
    const JoinedOutput output = Parse(*NewParser(glm, {.parse_tools = true, .tools = tools}), {text});
    ASSERT_EQ(output.calls.size(), 1u) << tools;
    EXPECT_EQ(output.calls[0].arguments, "{\"k\": 1}") << tools;
  }
}

// Values that nest a million deep must neither overflow the stack nor get lost.
TEST(OutputParserTest, DeepNesting) {
  const std::string deep(1000000, '[');
  const std::string json_call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + deep;
  EXPECT_EQ(Parse(*Hermes(), {json_call}).calls.at(0).arguments, "{\"a\": " + deep);
  const OutputFormat glm = FindOutputFormat("glm4_moe", "<arg_key>", {});
  const std::string xml_call = "<tool_call>f<arg_key>k</arg_key><arg_value>" + deep + "</arg_value></tool_call>";
  EXPECT_EQ(Parse(*NewParser(glm, {.parse_tools = true}), {xml_call}).calls.at(0).arguments,
            "{\"k\": \"" + deep + "\"}");
}

struct Soup {
  const char* family;
  const char* chat_template;
  std::vector<std::string> markup;  // # stands for a number that differs each time
};

// The function f has the properties k0 to k19.
std::string SoupTools() {
  nlohmann::json properties;
  for (int i = 0; i < 20; ++i) properties["k" + std::to_string(i)] = {{"type", {"string", "array"}}};
  return nlohmann::json::array({{{"function", {{"name", "f"}, {"parameters", {{"properties", properties}}}}}},
                                {{"function", {{"name", "function"}}}}})
      .dump();
}

// Random rows of markers, JSON and words: cuts change nothing, and no word is lost that is not control text.
TEST(OutputParserTest, AnyTextIsTheSameHoweverItIsCutAndNoWordIsLost) {
  const std::vector<Soup> soups = {
      {"deepseek_v3",
       "<｜tool▁call</think>",
       {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>", "\n```json\n", "\n```", "function"}},
      {"kimi_k2",
       "<|tool_call_begin|></think>",
       {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
        "<|tool_calls_section_end|>", "functions.", ":0"}},
      {"qwen3_moe", "<tool_call></think>", {"<tool_call>", "</tool_call>", "{\"name\": ", "\"arguments\": "}},
      {"qwen3_moe",
       "<function=</think>",
       {"<tool_call>", "</tool_call>", "<function=", ">", "</function>", "<parameter=", "</parameter>",
        "<tool_call>\n<function=f>\n", "\n<parameter=k#>", "\n<parameter=k#>", "</parameter>\n",
        "</parameter>\n</function>\n</tool_call>"}},
      {"glm4_moe",
       "<arg_key></think>",
       {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_call>f\n",
        "\n<arg_key>k#</arg_key>\n<arg_value>", "\n<arg_key>k#</arg_key>", "</arg_value>\n",
        "</arg_value>\n</tool_call>"}},
      {"minimax_m2",
       "<minimax:tool_call></think>",
       {"<minimax:tool_call>", "</minimax:tool_call>", "<invoke name=\"", "\">", "</invoke>", "<parameter name=\"",
        "</parameter>", "<minimax:tool_call>\n<invoke name=\"f\">\n", "\n<parameter name=\"k#\">",
        "\n<parameter name=\"k#\">", "</parameter>\n", "</parameter>\n</invoke>\n</minimax:tool_call>"}},
      {"mixtral", "[TOOL_CALLS]", {"[TOOL_CALLS]", "[", "]", "{\"name\": ", "\"arguments\": "}},
      {"llama", "<|python_tag|>", {"<|python_tag|>", ";", "{\"name\": ", "\"parameters\": "}},
      {"gpt_oss",
       "",
       {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "analysis",
        "final", " to=functions."}}};
  const std::vector<std::string> common = {"<think>", "</think>", "{", "}", "\"", ", ",   ": ",
                                           "\n",      " ",        "<", "é", "f",  "\"f\""};
  const std::string tools = SoupTools();
  std::mt19937 random(5);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (const Soup& soup : soups) {
    SCOPED_TRACE(soup.chat_template);
    const OutputFormat format = FindOutputFormat(soup.family, soup.chat_template, {});
    std::vector<std::string> parts = soup.markup;
    parts.insert(parts.end(), common.begin(), common.end());
    for (int round = 0; round < 3000; ++round) {
      const ParserOptions options = {.reasoning_open = below(4) == 0,
                                     .parse_tools = below(8) != 0,
                                     .tools = tools,
                                     .id_seed = 3,
                                     .lost_tags = below(8) != 0};
      std::string text;
      for (size_t i = 0; i < 20; ++i) {
        std::string part = below(3) == 0 ? "w#x" : parts[below(parts.size())];
        if (const size_t at = part.find('#'); at != std::string::npos) part.replace(at, 1, std::to_string(i));
        text += part;
      }
      const JoinedOutput whole = Parse(*NewParser(format, options), {text});
      std::vector<std::string> pieces;
      for (size_t at = 0; at < text.size(); at += pieces.back().size()) pieces.push_back(text.substr(at, 1 + below(4)));
      ASSERT_EQ(Parse(*NewParser(format, options), pieces), whole) << text;
      if (format.calls == CallSyntax::kHarmony) continue;  // A header's words are control text.
      std::string all = whole.content + " " + whole.reasoning;
      for (const auto& call : whole.calls) all += " " + call.id + " " + call.name + " " + call.arguments;
      for (int i = 0; i < 20; ++i) {
        const std::string word = "w" + std::to_string(i) + "x";
        if (text.find(word) == std::string::npos) continue;
        ASSERT_THAT(all, HasSubstr(word)) << text;
      }
    }
  }
}

TEST(OutputFormatTest, TemplatesDecide) {
  EXPECT_EQ(FindOutputFormat("qwen3_moe", "", {}).calls, CallSyntax::kNone);
  EXPECT_FALSE(FindOutputFormat("qwen3_moe", "", {}).thinks);
  EXPECT_EQ(FindOutputFormat("kimi_k2", "<｜tool▁call▁begin｜>", {}).calls, CallSyntax::kDeepSeek);
  EXPECT_EQ(FindOutputFormat("glm4_moe", "<tool_call>", {}).calls, CallSyntax::kHermes);
  EXPECT_EQ(FindOutputFormat("llama", "{{ message.tool_calls }}", {}).calls, CallSyntax::kLlama);
  EXPECT_EQ(FindOutputFormat("mixtral", "{{ message.tool_calls }}", {}).calls, CallSyntax::kNone);
  EXPECT_EQ(FindOutputFormat("gpt_oss", "", {}).calls, CallSyntax::kHarmony);
  EXPECT_FALSE(FindOutputFormat("gpt_oss", "</think>", {}).thinks);
}

TEST(OutputFormatTest, MarkersAreNoControlText) {
  const OutputFormat format = FindOutputFormat("", "<tool_call>", {"<tool_call>", "<think>", "<|end|>", ""});
  const auto text = [&](std::string_view token) { return Parse(*NewParser(format, {}), {std::string(token)}).content; };
  EXPECT_EQ(text("<tool_call>"), "<tool_call>");
  EXPECT_EQ(text("a<think>b"), "a<think>b");
  EXPECT_EQ(text("a<|end|>b"), "ab");
  EXPECT_EQ(text("a<|end|"), "a<|end|");
}

}  // namespace
}  // namespace moestro::router
