// Random texts of the grammars must come out of the parser as calls of the tools, with valid arguments; and what models
// have really written must be a text of them.
#include "services/router/output/answer_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "absl/strings/str_replace.h"
#include "common/text/grammar/compile.h"
#include "common/text/grammar/matcher.h"
#include "tests/services/router/output/joined_output.h"
#include "tests/services/router/output/recorded_model.h"

namespace moestro::router {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using text::grammar::Matcher;

constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "move", "description": "d", "parameters": {
    "type": "object", "required": ["to", "steps", "path"], "additionalProperties": false,
    "properties": {
      "to": {"type": "string", "enum": ["left", "right \"up\""]},
      "steps": {"type": "integer", "minimum": 1, "maximum": 30},
      "note": {"type": "string"},
      "path": {"type": "array", "items": {"$ref": "#/$defs/point"}, "minItems": 1, "maxItems": 2},
      "fast": {"type": ["boolean", "null"]}},
    "$defs": {"point": {"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}}}}}},
  {"type": "function", "function": {"name": "stop"}},
  {"type": "function", "function": {"name": "other.thing", "parameters": {
    "type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}}}])";

absl::StatusOr<Constraint> Calls(const OutputFormat& format, const CallRules& rules) {
  KnownConstraints known;
  ConstraintCheck constraints = ConstraintCheck::Whole(known, [] { return absl::OkStatus(); });
  return ConstrainToCalls(format, rules, constraints);
}

std::shared_ptr<const text::grammar::Automaton> Compile(const Constraint& constraint) {
  text::grammar::CompileBudget budget;
  auto automaton = text::grammar::CompileConstraint(constraint, budget);
  EXPECT_TRUE(automaton.ok()) << automaton.status() << "\n" << constraint.text;
  return std::make_shared<const text::grammar::Automaton>(*std::move(automaton));
}

// What a model without any sense writes under a grammar. Ends strings and free texts after a while.
std::string RandomText(const Constraint& constraint, uint64_t seed) {
  Matcher matcher(Compile(constraint));
  Matcher::Configuration at = matcher.start();
  std::mt19937_64 random(seed);
  std::string text;
  while (text.size() < 20000) {
    std::vector<int> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      if (matcher.Next(at, static_cast<uint8_t>(byte)) != Matcher::kDead) bytes.push_back(byte);
    }
    if (matcher.MayEnd(at) && (bytes.empty() || random() % 3 == 0)) return text;
    int next = bytes[random() % bytes.size()];
    for (const int end : {int{'"'}, int{'}'}, int{']'}, 0xFF}) {
      if (random() % 4 == 0 && std::ranges::count(bytes, end) > 0) next = end;
    }
    at = matcher.Next(at, static_cast<uint8_t>(next));
    if (next != text::grammar::kSpecialTokenByte) text += static_cast<char>(next);
  }
  ADD_FAILURE() << "no end: " << text;
  return text;
}

bool Matches(const Constraint& constraint, const std::string& text) {
  Matcher matcher(Compile(constraint));
  Matcher::Configuration at = matcher.start();
  for (const char c : text) at = matcher.Next(at, static_cast<uint8_t>(c));
  return at != Matcher::kDead && matcher.MayEnd(at);
}

void CheckArguments(const JoinedOutput::Call& call) {
  const json arguments = json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(arguments.is_object()) << call.arguments;
  if (call.name == "stop") {
    EXPECT_TRUE(arguments.empty());
  } else if (call.name == "move") {
    for (const char* key : {"to", "steps", "path"}) ASSERT_TRUE(arguments.contains(key)) << call.arguments;
    EXPECT_THAT(arguments["to"].get<std::string>(), AnyOf("left", "right \"up\""));
    EXPECT_TRUE(arguments["steps"].is_number_integer());
    EXPECT_GE(arguments["steps"], 1);
    EXPECT_LE(arguments["steps"], 30);
    ASSERT_TRUE(arguments["path"].is_array()) << call.arguments;
    EXPECT_TRUE(arguments["path"].size() == 1 || arguments["path"].size() == 2);
    for (const json& point : arguments["path"]) EXPECT_TRUE(point["x"].is_number());
    EXPECT_TRUE(!arguments.contains("note") || arguments["note"].is_string());
    EXPECT_TRUE(!arguments.contains("fast") || arguments["fast"].is_boolean() || arguments["fast"].is_null());
  } else {
    EXPECT_EQ(call.name, "other.thing");
  }
}

class AnswerGrammarTest : public ::testing::TestWithParam<const char*> {
 protected:
  JoinedOutput Output(const std::string& text, bool reasoning_open, bool parse_tools = true) const {
    const auto parser = NewParser(
        model_.format, {.reasoning_open = reasoning_open, .parse_tools = parse_tools, .tools = kTools, .id_seed = 1});
    return Parse(*parser, {text});
  }
  bool has_calls() const { return model_.format.calls != CallSyntax::kNone; }

  const RecordedModel model_{GetParam()};
};

TEST_P(AnswerGrammarTest, RandomTextsAreCalls) {
  if (!has_calls()) GTEST_SKIP() << "the model has no calls";
  size_t several = 0, reasoned = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const bool open = seed % 3 == 0 && model_.format.thinks;
    const bool one = seed % 4 == 0;
    const bool named = seed % 5 == 0;
    CallRules rules{.tools = kTools, .several = !one, .reasoning_open = open};
    if (named) rules.names = {"move", "stop"};
    const auto constraint = Calls(model_.format, rules);
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    const std::string text = RandomText(*constraint, seed);
    SCOPED_TRACE(text);
    const JoinedOutput output = Output(text, open);
    EXPECT_EQ(output.content, "");
    ASSERT_GE(output.calls.size(), 1u);
    EXPECT_TRUE(!one || output.calls.size() == 1);
    several += output.calls.size() > 1;
    reasoned += !output.reasoning.empty();
    for (const JoinedOutput::Call& call : output.calls) {
      EXPECT_TRUE(!named || call.name == "move" || call.name == "stop");
      CheckArguments(call);
    }
  }
  const bool has_several = model_.format.calls != CallSyntax::kLlama && model_.format.calls != CallSyntax::kHarmony;
  EXPECT_EQ(several > 0, has_several);
  EXPECT_EQ(reasoned > 0, model_.format.thinks || model_.format.calls == CallSyntax::kHarmony);
}

// Free text, and calls as soon as the mark of calls is written.
TEST_P(AnswerGrammarTest, RandomTextsMayCall) {
  if (!CanLeaveCallsOpen(model_.format)) GTEST_SKIP() << "calls have no mark";
  const Constraint yes{.kind = Constraint::Kind::kRegex, .text = "yes|no"};
  for (const Constraint& otherwise : {Constraint{}, yes}) {
    size_t called = 0, answered = 0;
    for (uint64_t seed = 0; seed < 80; ++seed) {
      const bool open = seed % 3 == 0 && model_.format.thinks;
      const auto constraint =
          Calls(model_.format, {.tools = kTools, .names = {"move"}, .reasoning_open = open, .otherwise = otherwise});
      ASSERT_TRUE(constraint.ok()) << constraint.status();
      const std::string text = RandomText(*constraint, seed);
      SCOPED_TRACE(text);
      const JoinedOutput output = Output(text, open);
      if (otherwise.kind != Constraint::Kind::kNone) {
        EXPECT_EQ(output.content.empty(), !output.calls.empty());
        EXPECT_THAT(output.content, AnyOf("", "yes", "no"));
      }
      answered += output.calls.empty();
      called += !output.calls.empty();
      for (const JoinedOutput::Call& call : output.calls) {
        EXPECT_EQ(call.name, "move");
        CheckArguments(call);
      }
    }
    EXPECT_GT(called, 0u);
    EXPECT_GT(answered, 0u);
  }
}

// Models write calls in more ways than one; the grammar has the usual one.
TEST_P(AnswerGrammarTest, WhatTheModelWroteIsOneOfThem) {
  if (!has_calls()) GTEST_SKIP() << "the model has no calls";
  int tried = 0, matched = 0;
  for (const json& test : model_.file["cases"]) {
    if (!test.contains("calls") || test.value("content", "") != "") continue;
    const auto constraint =
        Calls(model_.format, {.tools = model_.tools, .reasoning_open = test.value("reasoning_open", false)});
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    std::string text = test["text"];
    if (text.starts_with("<think>") && text.find("</think>") == std::string::npos) continue;  // a model's mistake
    ++tried;
    for (const std::string token : model_.file["special_tokens"]) {  // with which the model stops
      if (!text.ends_with(token)) continue;
      text.resize(text.size() - token.size());
      break;
    }
    matched += Matches(*constraint, text);
    if (!CanLeaveCallsOpen(model_.format)) continue;
    const auto open = Calls(
        model_.format,
        {.tools = model_.tools, .reasoning_open = test.value("reasoning_open", false), .otherwise = Constraint{}});
    ASSERT_TRUE(open.ok()) << open.status();
    EXPECT_TRUE(Matches(*open, text) || !Matches(*constraint, text)) << text;
  }
  if (tried == 0) GTEST_SKIP() << "no answer of calls alone is recorded";
  EXPECT_GE(matched, 1);
}

TEST_P(AnswerGrammarTest, AConstraintBindsTheAnswerOnly) {
  const Constraint any{.kind = Constraint::Kind::kRegex, .text = "(yes|no) [0-9]{2}\\."};
  const Constraint grammar{.kind = Constraint::Kind::kGrammar, .text = "root ::= \"\\\"\" x\nx ::= [0-9]{1,3}\n"};
  const Constraint schema{.kind = Constraint::Kind::kJsonSchema,
                          .text = R"({"type": "array", "items": {"enum": [1]}})"};
  for (const Constraint& answer : {any, grammar, schema, Constraint{.kind = Constraint::Kind::kJsonObject}}) {
    size_t reasoned = 0;
    const bool reasons = model_.format.thinks || model_.format.calls == CallSyntax::kHarmony;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const bool open = seed % 2 == 0 && model_.format.thinks;
      const Constraint whole = AfterReasoning(model_.format, open, answer);
      EXPECT_EQ(whole.text == answer.text, !reasons) << "without reasoning nothing changes";
      const std::string text = RandomText(whole, seed);
      SCOPED_TRACE(text);
      const JoinedOutput output = Output(text, open, /*parse_tools=*/false);
      EXPECT_TRUE(Matches(answer, output.content)) << output.content;
      reasoned += !output.reasoning.empty();
    }
    EXPECT_EQ(reasoned > 0, reasons);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AnswerGrammarTest, ::testing::ValuesIn(kRecordedModels), [](const auto& model) {
  return std::string(model.param).substr(0, std::string(model.param).find('.'));
});

std::string Error(CallSyntax calls, const std::string& tools, std::vector<std::string> names = {}) {
  OutputFormat format;
  format.calls = calls;
  return std::string(Calls(format, {.tools = tools, .names = std::move(names)}).status().message());
}

TEST(ConstrainToCallsTest, FindsStrictTools) {
  EXPECT_FALSE(HasStrictTool(kTools));
  EXPECT_FALSE(HasStrictTool(""));
  EXPECT_TRUE(HasStrictTool(R"([{"function": {"name": "a"}}, {"function": {"name": "b", "strict": true}}])"));
  EXPECT_FALSE(HasStrictTool(R"([{"function": {"name": "b", "strict": false}}])"));
}

TEST(ConstrainToCallsTest, ErrorsNameTheField) {
  EXPECT_THAT(Error(CallSyntax::kNone, kTools), HasSubstr("no calls that could be forced"));
  EXPECT_THAT(Error(CallSyntax::kHermes, "[]"), HasSubstr("there are no tools"));
  EXPECT_THAT(Error(CallSyntax::kHermes, kTools, {"move", "jump"}), HasSubstr("'jump' is none of the functions"));
  EXPECT_THAT(Error(CallSyntax::kHermes, R"([{"function": {"name": "a b"}}])"), HasSubstr("tools[0].function.name"));
  EXPECT_THAT(Error(CallSyntax::kHermes, R"([{"function": {"name": "a", "strict": true, "parameters":
      {"type": "object", "properties": {"x": {"uniqueItems": true}}}}}])"),
              AllOf(HasSubstr("tools[0].function.parameters"), HasSubstr("uniqueItems")));
  EXPECT_THAT(Error(CallSyntax::kHermes, R"([{"function": {"name": "a", "strict": true, "parameters":
      {"type": "string"}}}])"),
              HasSubstr("must have the type object"));
}

// As the parser reads it: a bare text, not one in quotes.
TEST(ConstrainToCallsTest, AStringBehindAReferenceIsBareInTags) {
  const auto constraint = [](const std::string& value) {
    OutputFormat format;
    format.calls = CallSyntax::kQwenCoder;
    const std::string tools = R"([{"function": {"name": "f", "parameters": {"type": "object", "required": ["p"],
        "properties": {"p": )" +
                              value + R"(},
        "$defs": {"text": {"type": "string"}, "mode": {"enum": ["fast", "2"]}, "level": {"enum": [1, 2]}}}}}])";
    return Calls(format, {.tools = tools}).value();
  };
  const auto call = [](const std::string& text) {
    return "<tool_call>\n<function=f>\n<parameter=p>\n" + text + "\n</parameter>\n</function>\n</tool_call>";
  };
  for (const char* text :
       {R"({"$ref": "#/$defs/text"})", R"({"allOf": [{"$ref": "#/$defs/text"}]})", R"({"enum": ["a", 1]})"}) {
    EXPECT_TRUE(Matches(constraint(text), call("any text"))) << text;
  }
  for (const char* mode : {R"({"$ref": "#/$defs/mode"})", R"({"allOf": [{"$ref": "#/$defs/mode"}], "default": "2"})"}) {
    EXPECT_TRUE(Matches(constraint(mode), call("fast"))) << mode;
    EXPECT_TRUE(Matches(constraint(mode), call("2"))) << mode;
    EXPECT_FALSE(Matches(constraint(mode), call("slow"))) << mode;
    EXPECT_FALSE(Matches(constraint(mode), call("\"fast\""))) << mode;
  }
  for (const char* level : {R"({"$ref": "#/$defs/level"})", R"({"enum": [1, 2]})"}) {
    EXPECT_TRUE(Matches(constraint(level), call("2"))) << level;
    EXPECT_FALSE(Matches(constraint(level), call("3"))) << level;
  }
}

// Each of its properties has a copy of the definitions where arguments stand in tags.
std::string ManyProperties(int properties, size_t definition_bytes) {
  std::string members;
  for (int i = 0; i < properties; ++i) {
    absl::StrAppend(&members, i == 0 ? "" : ",", "\"p", i,
                    "\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/d\"}}");
  }
  return absl::StrCat(R"([{"function":{"name":"a","parameters":{"type":"object","properties":{)", members,
                      R"(},"$defs":{"d":{"const":")", std::string(definition_bytes, 'x'), R"("}}}}}])");
}

TEST(ConstrainToCallsTest, CopiesOfDefinitionsAreBounded) {
  constexpr CallSyntax kTagged[] = {CallSyntax::kQwenCoder, CallSyntax::kGlm, CallSyntax::kMiniMax};
  for (const CallSyntax calls : kTagged) {
    EXPECT_EQ(Error(calls, ManyProperties(4, 50'000)), "");
    EXPECT_THAT(Error(calls, ManyProperties(6, 50'000)),
                AllOf(HasSubstr("\"a\""), HasSubstr("more than 262144 bytes")));
    // Without the bound 25 MB would be made, and refused then.
    EXPECT_THAT(Error(calls, ManyProperties(500, 50'000)), HasSubstr("more than 262144 bytes"));
  }
}

TEST(ConstrainToCallsTest, WhatTakesLongInATurnIsInterrupted) {
  KnownConstraints known;
  ConstraintCheck quick = ConstraintCheck::Quick(known);
  ASSERT_TRUE(quick.SpendBytes(16 * (text::grammar::kQuickCompileSteps - 100)).ok());
  OutputFormat format;
  format.calls = CallSyntax::kQwenCoder;
  EXPECT_FALSE(ConstrainToCalls(format, {.tools = kTools}, quick).ok()) << "not a form without a bound";
  EXPECT_TRUE(quick.is_interrupted());
}

}  // namespace
}  // namespace moestro::router
