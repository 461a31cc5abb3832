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
  return (*chat_template)->Render(messages, {}).status();
}

TEST(ChatTemplateErrorTest, NamesTheLineAndTheCause) {
  for (const auto& [source, cause] : std::vector<std::pair<std::string, std::string>>{
           {"a\n{% include 'x' %}", "line 2: tag 'include' is not supported"},
           {"a\n\n{{ x|sort }}", "line 3: filter 'sort' is not supported"},
           {"{# a\n b #}\n{{ x is strange }}", "line 3: test 'strange' is not supported"},
           {"{{ a.b.c }}", "'a' is undefined"},
           {"{{ messages[0].x.y }}", "'the expression.x' is undefined"},
           {"{% set ns = namespace() %}\n{{ ns.a.b }}", "line 2: 'ns.a' is undefined"},
           {"\n{{ fn(1) }}", "line 2: 'fn' is undefined, not a function"},
           {"{{ 'x'.title() }}", "string has no method 'title'"},
           {"{{ raise_exception('turns must\nalternate') }}", "turns must\nalternate"},
           {"{{ 'a'|replace('a') }}", "'replace': 'new' must be a string, not undefined"},
           {"{{ 'a'|join(x=1) }}", "argument 'x' is not supported"},
           {"{{ 'a'|trim('b', chars='c') }}", "argument 'chars' is given twice"},
           {"{{ 'a'|trim('b', 'c') }}", "takes 1 arguments, not 2"},
           {"{% for x in [1] recursive %}{% endfor %}", "recursive"},
           {"{% for x in [1] %}{% macro m() %}{% endmacro %}{% endfor %}", "macro inside a loop"},
           {"{{ f(*args) }}", "unpacked arguments"},
           {"{{ 99999999999999999999 }}", "out of range"},
           {"{{ 9223372036854775807 + 1 }}", "overflow"},
           {"{{ (-9223372036854775807 - 1) // -1 }}", "overflow"},
           {"{{ 2 ** 63 }}", "overflow"},
           {"{{ 1a }}", "malformed number"},
           {"{{ '\\x4' }}", "escape"},
           {"{{ '\\ud800' }}", "escape"},
           {"{{ {1: 2} }}", "dict key must be a string"},
           {"{% if 1 %}\n{% elif %}", "line 2: expected an expression, not '%}'"},
           {"{{ 1 if }}", "expected an expression"},
           {"{% set a.b.c = 1 %}", "expected '%}'"},
           {"{{ 'x'|tojson(indent=99999999) }}", "'indent'"},
           {"{% endfor %}", "'endfor' has no opening tag"},
       }) {
    const absl::Status status = ErrorOf(source);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << source << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("template line "), HasSubstr(cause))) << source;
  }
}

TEST(ChatTemplateErrorTest, RefusesTextThatIsNotUtf8) {
  EXPECT_THAT(std::string(ErrorOf("ok \xFF").message()), HasSubstr("byte 3"));
  EXPECT_THAT(std::string(ErrorOf("ok", {{"user", "fine"}, {"user", "ab\xC3"}}).message()),
              HasSubstr("message 1 is not valid UTF-8 at byte 2"));
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
      "{% elif 5 // 2 is odd %}{% else %}{{- (1, 2)|join(',') -}}{% endif %}";
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
