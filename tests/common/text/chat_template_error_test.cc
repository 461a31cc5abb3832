#include <string>
#include <vector>

#include "common/text/chat_template.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moestro::text {
namespace {

using testing::HasSubstr;

absl::Status ErrorOf(const std::string& source, const std::vector<ChatMessage>& messages = {{"user", "x"}}) {
  const auto chat_template = ChatTemplate::Parse(source);
  if (!chat_template.ok()) return chat_template.status();
  return (*chat_template)->Render({.messages = messages}, {}).status();
}

TEST(ChatTemplateErrorTest, NamesTheLineAndTheCause) {
  for (const auto& [source, cause] : std::vector<std::pair<std::string, std::string>>{
           {"a\n{% include 'x' %}", "line 2: tag 'include' needs another template, and a model has only this one"},
           {"a\n\n{{ x|resort }}", "line 3: filter 'resort' is not supported"},
           {"{{ x|wordwrap(2) }}", "line 1: filter 'wordwrap' is not supported"},
           {"{# a\n b #}\n{{ x is strange }}", "line 3: test 'strange' is not supported"},
           {"{{ a.b.c }}", "'a' is undefined"},
           {"{{ messages[0].x.y }}", "'the expression.x' is undefined"},
           {"{% set ns = namespace() %}\n{{ ns.a.b }}", "line 2: 'ns.a' is undefined"},
           {"\n{{ fn(1) }}", "line 2: 'fn' is undefined, not a function"},
           {"{{ 'x'.swapcase() }}", "string has no method 'swapcase'"},
           {"{{ raise_exception('turns must\nalternate') }}", "turns must\nalternate"},
           {"{{ 'a'|replace('a') }}", "'replace': 'new' must be a string, not undefined"},
           {"{{ 'a'|join(x=1) }}", "argument 'x' is not supported"},
           {"{{ 'a'|trim('b', chars='c') }}", "argument 'chars' is given twice"},
           {"{{ 'a'|trim('b', 'c') }}", "takes 1 arguments, not 2"},
           {"{% for x in [1] %}{% macro m() %}{% endmacro %}{% endfor %}", "macro inside a loop"},
           {"{{ 99999999999999999999 }}", "out of range"},
           {"{{ 9223372036854775807 + 1 }}", "overflow"},
           {"{{ (-9223372036854775807 - 1) // -1 }}", "overflow"},
           {"{{ 2 ** 63 }}", "overflow"},
           {"{{ 1a }}", "malformed number"},
           {"{{ '\\x4' }}", "escape"},
           {"{{ '\\ud800' }}", "escape"},
           {"{{ {[1]: 2} }}", "list cannot be the key of a dict"},
           {"{{ f(**[1]) }}", "'f' is undefined, not a function"},
           {"{{ dict(**[1]) }}", "'**' needs a dict"},
           {"{% for x in [1] %}{{ loop([2]) }}{% endfor %}", "the loop is not recursive"},
           {"{{ '{}'.format() }}", "not enough arguments for the format"},
           {"{{ '{x}'.format(y=1) }}", "the format names 'x', which is not given"},
           {"{{ '{'.format(1) }}", "a single brace in the format"},
           {"{{ '{:99999}'.format(1) }}", "a width or precision is over 1000"},
           {"{{ '%(a)s' % {} }}", "the format names a member that the dict lacks"},
           {"{{ 'a'.index('b') }}", "substring not found"},
           {"{{ [1]|batch(0)|list }}", "'linecount' must be at least 1"},
           {"{% if 1 %}\n{% elif %}", "line 2: expected an expression, not '%}'"},
           {"{{ 1 if }}", "expected an expression"},
           {"{% set a.b.c = 1 %}", "expected '%}'"},
           {"{{ 'x'|tojson(indent=99999999) }}", "'indent'"},
           {"{% endfor %}", "'endfor' has no opening tag"},
           {"{% block x %}{% endblock %}", "tag 'block' is not supported"},
           {"\n{{ ['a'].append(1) }}", "line 2: list has no method 'append'"},
           {"{{ [1, 'a']|sort }}", "'sort': cannot order integer and string"},
           {"{{ 'x'|format(1) }}", "'format': not all arguments are used by the format"},
           {"{{ '%999999999d'|format(1) }}", "a width or precision is over 1000"},
           {"{{ 'x'|indent(99999) }}", "'width' is over 1000"},
           {"{{ 1|round(99) }}", "'precision' must be 0 to 20"},
           {"{{ {}|tojson(separators=',') }}", "'separators' must be two strings"},
           {"{{ {}|tojson(indent=' ' * 99) }}", "'indent' is over 16 bytes"},
           {"{{ strftime_now('%Y' * 999) }}", "the date is longer than 1024 bytes"},
           {"{{ strftime_now('\\0') }}", "'format' has a NUL character"},
           {"{% call m %}{% endcall %}", "a call block needs the call of a macro"},
           {"{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}", "'m' has no use for the body of a call block"},
           {"{% set ns = namespace() %}{% macro m() %}{% set ns.c = caller %}{% endmacro %}{% call m() %}x{% endcall %}"
            "{{ ns.c() }}",
            "the call block of a caller has ended"},
           {"{{ namespace(1) }}", "namespace() takes a dict and named arguments only"},
           {"{{ [1]|map('map', 'upper')|list }}", "map of map is not supported"},
       }) {
    const absl::Status status = ErrorOf(source);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << source << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("template line "), HasSubstr(cause))) << source;
  }
}

TEST(ChatTemplateErrorTest, RefusesTextThatIsNotUtf8) {
  EXPECT_THAT(std::string(ErrorOf("ok \xFF").message()), HasSubstr("byte 3"));
  EXPECT_THAT(std::string(ErrorOf("ok", {{"user", "fine"}, {"user", "ab\xC3"}}).message()),
              HasSubstr("chat.messages[1].content: is not valid UTF-8 at byte 2"));
}

// A request is refused before the template sees it.
TEST(ChatTemplateErrorTest, NamesTheFieldOfABadRequest) {
  const auto chat_template = ChatTemplate::Parse("{{ tools }}{{ messages }}");
  ASSERT_TRUE(chat_template.ok());
  const std::string tool = R"({"type": "function", "function": {"name": "f"}})";
  const auto call = [](const std::string& arguments) {
    return ChatMessage{
        .role = "assistant", .content = "", .tool_calls = {{.id = "", .name = "f", .arguments = arguments}}};
  };
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  const auto numbers = [](int count) {
    std::string text = "[0";
    while (--count > 0) text += ",0";
    return text + "]";
  };
  for (const auto& [chat, cause] : std::vector<std::pair<Chat, std::string>>{
           {{.tools = "{"}, "chat.tools: not valid JSON: "},
           {{.tools = "[] []"}, "chat.tools: not valid JSON: "},
           {{.tools = "[\"\xFF\"]"}, "chat.tools: not valid JSON: "},
           {{.tools = std::string("[]\0", 3)}, "chat.tools: not valid JSON: contains a NUL byte"},
           {{.tools = tool}, "chat.tools: must be a JSON array of functions, not dict"},
           {{.tools = "null"}, "chat.tools: must be a JSON array of functions, not none"},
           {{.tools = "[" + tool + ", 1]"}, "chat.tools[1]: must be a JSON object {"},
           {{.tools = R"([{"name": "f"}])"}, "chat.tools[0]: must be a JSON object {"},
           {{.tools = R"([{"type": "function", "function": {"name": ""}}])"}, "chat.tools[0]: must be a JSON object {"},
           {{.tools = R"([{"type": "function", "function": {"name": 1}}])"}, "chat.tools[0]: must be a JSON object {"},
           {{.tools = R"([{"type": "code", "function": {"name": "f"}}])"}, "chat.tools[0]: must be a JSON object {"},
           {{.tools = nested(49)}, "chat.tools: is nested deeper than 48"},
           {{.tools = numbers(60)}, "chat.tools: has too many JSON values"},
           {{.template_flags = "true"}, "chat.template_flags: must be a JSON object, not boolean"},
           {{.template_flags = "{\"a\": }"}, "chat.template_flags: not valid JSON: "},
           {{.template_flags = R"({"messages": []})"}, "chat.template_flags: 'messages' is not a flag"},
           {{.template_flags = R"({"strftime_now": 1})"}, "chat.template_flags: 'strftime_now' is not a flag"},
           {{.template_flags = R"({"a b": 1})"}, "chat.template_flags: 'a b' is not the name of a variable"},
           {{.template_flags = R"({"1a": 1})"}, "chat.template_flags: '1a' is not the name of a variable"},
           {{.template_flags = R"({"": 1})"}, "chat.template_flags: '' is not the name of a variable"},
           {{.messages = {call(nested(49))}}, "chat.messages[0].tool_calls[0].arguments: is nested deeper than 48"},
           {{.messages = {call(numbers(60))}}, "chat.messages[0].tool_calls[0].arguments: has too many JSON values"},
           {{.messages = {call(numbers(30)), call(numbers(30))}},
            "chat.messages[1].tool_calls[0].arguments: has too many JSON values"},
           {{.messages = {{.role = "user", .content = "", .name = "\xFF"}}},
            "chat.messages[0].name: is not valid UTF-8 at byte 0"},
           {{.messages = {{.role = "tool", .content = "", .tool_call_id = "a\xC0"}}},
            "chat.messages[0].tool_call_id: is not valid UTF-8 at byte 1"},
           {{.messages = {{.role = "assistant", .content = "", .reasoning_content = "\xFF"}}},
            "chat.messages[0].reasoning_content: is not valid UTF-8 at byte 0"},
           {{.messages = {call("\xFF")}}, "chat.messages[0].tool_calls[0].arguments: is not valid UTF-8 at byte 0"},
       }) {
    const absl::Status status = (*chat_template)->Render(chat, {.max_json_values = 60}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << cause << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(cause));
  }
  EXPECT_TRUE((*chat_template)->Render({.tools = "[" + tool + "]"}, {.max_json_values = 5}).ok());
}

void ExpectAnswer(const std::string& source) {
  const absl::StatusCode code = ErrorOf(source).code();
  EXPECT_TRUE(code == absl::StatusCode::kOk || code == absl::StatusCode::kInvalidArgument ||
              code == absl::StatusCode::kResourceExhausted)
      << source;
}

// Every prefix and every one-character deletion of a template with all constructs: an answer, never a crash.
TEST(ChatTemplateErrorTest, SurvivesDamagedTemplates) {
  const std::string source =
      "{%- macro m(a, b='x') -%}{{ a ~ b }}{%- endmacro %}{% set ns = namespace(n=0) %}{% raw %}{{{% endraw %}"
      "{% for x, y in {'k': [1, 2.5]}.items() if x is string and not y is none %}{{ loop.index }}{% break %}"
      "{% else %}{{ 'e\\n'[::-1]|trim('\\t') }}{% endfor %}{% set ns.n %}t{% endset %}{# c #}\n"
      "{% if ns.n in ['t'] or 1 < 2 <= 3 %}{{ m(1, b=messages[-1]['content']) if true else -2 ** 3 }}"
      "{% elif 5 // 2 is odd %}{% else %}{{- (1, 2)|join(',') -}}{% endif %}{% macro w(t) %}{{ caller(t) }}{% endmacro "
      "%}"
      "{% call(u) w('v') %}{{ u|indent(1) }}{% endcall %}{% filter upper %}{% generation %}g{% endgeneration %}"
      "{% endfilter %}{% with q = 1 %}{{ '%d'|format(q) }}{{ [2, 1]|sort|tojson(indent=1) }}{% endwith %}";
  ASSERT_TRUE(ErrorOf(source).ok()) << ErrorOf(source);
  for (size_t i = 0; i < source.size(); ++i) {
    ExpectAnswer(source.substr(0, i));
    ExpectAnswer(source.substr(i));
    ExpectAnswer(source.substr(0, i) + source.substr(i + 1));
    for (const char c : {'}', '{', '%', '\'', '(', '-'}) ExpectAnswer(source.substr(0, i) + c + source.substr(i));
  }
}

}  // namespace
}  // namespace moestro::text
