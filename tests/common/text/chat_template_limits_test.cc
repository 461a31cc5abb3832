#include <string>
#include <vector>

#include "common/text/chat_template.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/thread_seconds.h"

namespace moestro::text {
namespace {

std::string Repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

absl::StatusOr<std::string> RenderBounded(const std::string& source, const std::vector<ChatMessage>& messages) {
  const auto chat_template = ChatTemplate::Parse(source);
  if (!chat_template.ok()) return chat_template.status();
  return (*chat_template)->Render({.messages = messages}, {});
}

TEST(ChatTemplateLimitsTest, RenderingIsBounded) {
  const std::string loop = "{% for i in range(1000) %}";
  const std::string end = "{% endfor %}";
  for (const std::string& source : std::vector<std::string>{
           // Time.
           Repeat("{% for i in range(100) %}", 8) + Repeat(end, 8),
           "{{ range(100000000000)|list }}",
           "{{ range(9223372036854775807)|length }}",
           "{% set a = 'x' * 200000 %}{% set b = 'y' * 200000 ~ 'x' %}{{ a.strip(b) }}",
           "{% set a = 'x' * 200000 %}{% set b = 'y' * 200000 ~ 'x' %}{{ a|trim(b) }}",
           "{% set a = 'x' * 1000000 %}{% set b = 'x' * 1000 ~ 'y' %}" + loop + "{{ b in a }}{{ a.find(b) }}" +
               "{{ a.split(b)[1] }}{{ a.rsplit(b)[1] }}{{ a.replace(b, '')[1] }}" + end,
           "{% set b = 'x' * 1000000 %}" + loop + "{{ 'x'.rsplit(b) }}" + end,
           "{% set a = ' ' * 1000000 %}" + loop + "{{ a|int }}" + end,
           "{% set a = ' ' * 1000000 %}" + loop + "{{ a|float }}" + end,
           "{% set k = 'x' * 1000000 %}{% set d = {k: 1} %}" + loop + "{{ d[k] }}" + end,
           "{% set k = 'x' * 1000000 %}{% set d = {k: 1} %}" + loop + "{{ d.get(k) }}" + end,
           "{% set k = 'x' * 1000000 %}{% set d = {k: 1} %}" + loop + "{{ k in d }}" + end,
           "{% set k = 'x' * 1000000 %}{% set ns = namespace() %}" + loop + "{{ ns[k] }}" + end,
           "{% set k = 'x' * 1000000 %}{{ ([{k: 1}] * 1000)|selectattr(k)|list|length }}",
           "{% set k = 'x' * 1000000 %}" + loop + "{{ []|rejectattr(k)|list|length }}" + end,
           // Memory.
           "{% set ns = namespace(s='x') %}" + loop + "{% set ns.s = ns.s ~ ns.s %}" + end,
           "{% set ns = namespace(s=[1]) %}" + loop + "{% set ns.s = ns.s + ns.s %}" + end,
           "{{ 'x' * 9223372036854775807 }}",
           "{{ [none] * 1000000000 }}",
           "{% set a = 'x' * 100000 %}{{ a|replace('x', a) }}",
           "{% set a = 'x' * 10000000 %}" + loop + "{{ a|list }}" + end,
           loop + loop + "{% set x %}{{ 'y' * 1000 }}{% endset %}" + end + end,
           "{% set ns = namespace(s=[1]) %}" + Repeat("{% set ns.s = [ns.s, ns.s] %}", 60) + "{{ ns.s }}",
           "{% set ns = namespace(s=[1], t=[1]) %}" +
               Repeat("{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}", 60) + "{{ ns.s == ns.t }}",
           // Output.
           "{% set a = 'x' * 40000000 %}{{ a }}",
           loop + "{{ 'x' * 40000 }}" + end,
           "{% set a = 'x' * 1000000 %}" + loop + "{{ [a, a]|sort|length }}" + end,
           "{% set l = range(30000)|list %}{{ l|unique|list|length }}",
           "{% set a = '\\n' * 1000000 %}{{ a|indent(1000, blank=true)|length }}",
           "{% set a = '\\n' * 10000000 %}{{ a.splitlines()|length }}",
           "{% set a = '%%' * 1000000 %}" + loop + "{{ a|format|length }}{{ a.count('%') }}" + end,
           "{% set l = ['x'] * 1000000 %}{{ ('y' * 1000).join(l)|length }}",
           "{% set a = '%(a)s' * 100000 %}{{ (a % {'a': 1})|length }}",
           loop + loop + "{{ '{:>1000}'.format(1) }}{{ 'x'.center(1000) }}" + end + end,
           "{% set l = [1] * 100000 %}" + loop + "{{ '{}'.format(*l) }}{{ loop.changed(l) }}" + end,
           "{% set l = [{'k': 1}] * 100000 %}" + loop + "{{ l|groupby('k')|length }}" + end,
           "{% set a = '<' * 1000000 %}" + loop + "{{ a|e|length }}{{ a.isalpha() }}" + end,
           "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
           "{% set l = [1] * 1000000 %}{{ l|tojson(separators=('y' * 1000, ''))|length }}",
           "{% set l = [1] * 10000 %}" + loop + "{{ l|map('default', 1)|list|length }}" + end,
           "{% set k = 'a.' * 1000000 ~ 'a' %}" + loop + "{{ []|selectattr(k)|list }}" + end,
           loop + loop + "{{ strftime_now('%Y') }}" + end + end,
           loop + loop + "{% filter upper %}{{ 'y' * 1000 }}{% endfilter %}" + end + end,
           // The stack.
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{% if 1 %}{{ a() ~ 1 }}{% endif %}{% endmacro %}{{ "
           "a() }}",
           "{% macro m() %}{% call n() %}{% endcall %}{% endmacro %}{% macro n() %}{{ m() }}{{ caller }}{% endmacro %}"
           "{{ m() }}",
           "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
           "{% set ns = namespace(l={}) %}{% for i in range(100000) %}{% set ns.l = {'a': ns.l} %}{% endfor %}",
       }) {
    const absl::Status status = RenderBounded(source, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << source.substr(0, 200) << status;
  }
}

// A part that almost matches everywhere must not be compared with the text everywhere.
TEST(ChatTemplateLimitsTest, SearchesTakeLinearTime) {
  const double begin = ThreadCpuSeconds();
  for (const std::string search : {"b in a", "a.find(b)", "a.split(b)|length", "a.rsplit(b)|length",
                                   "a.replace(b, '')|length", "a|replace(b, '')|length"}) {
    const auto text =
        RenderBounded("{% set a = 'x' * 400000 %}{% set b = 'x' * 200000 ~ 'y' %}{{ " + search + " }}", {});
    EXPECT_TRUE(text.ok()) << search << text.status();
  }
  EXPECT_LT(ThreadCpuSeconds() - begin, 2);
}

TEST(ChatTemplateLimitsTest, ParsingIsBounded) {
  constexpr int kMany = 100000;
  for (const std::string& source : std::vector<std::string>{
           "{{ " + Repeat("(", kMany),
           "{{ " + Repeat("[", kMany),
           "{{ " + Repeat("{'a':", kMany),
           "{{ " + Repeat("not ", kMany) + "1 }}",
           "{{ " + Repeat("-", kMany) + "1 }}",
           "{{ 1" + Repeat(" + 1", kMany) + " }}",
           "{{ 1" + Repeat(" or 1", kMany) + " }}",
           "{{ x" + Repeat(".a", kMany) + " }}",
           "{{ x" + Repeat("|trim", kMany) + " }}",
           "{{ x" + Repeat("()", kMany) + " }}",
           "{{ 1" + Repeat(" if 1 else 1", kMany) + " }}",
           "{{ 1" + Repeat(" is defined", kMany) + " }}",
           Repeat("{% if 1 %}", kMany),
           Repeat("{% for i in x %}", kMany),
           Repeat("{% set x %}", kMany),
           Repeat("{% call m() %}", kMany),
           Repeat("{% filter upper %}", kMany),
           Repeat("{% generation %}", kMany),
           Repeat("{% with %}", kMany),
       }) {
    EXPECT_EQ(ChatTemplate::Parse(source).status().code(), absl::StatusCode::kInvalidArgument) << source.substr(0, 50);
  }
}

// A namespace may contain itself; printing and freeing it must end.
TEST(ChatTemplateLimitsTest, CyclesAreHarmless) {
  const auto text =
      RenderBounded("{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns.self }}{{ ns.self == [ns] }}", {});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "[<namespace>]True");
}

TEST(ChatTemplateLimitsTest, LongConversationsStayWithinTheLimits) {
  const std::string content = Repeat("Some words, 一些文字 😀. ", 200);
  std::vector<ChatMessage> messages(2000, {"user", content});
  const auto text = RenderBounded(
      "{% for m in messages %}<{{ m.role }}>{{ m['content']|trim }}{% if not loop.last %}\n{% endif %}"
      "{% endfor %}",
      messages);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_GT(text->size(), 2000 * (content.size() - 2));
}

TEST(ChatTemplateLimitsTest, LongContentsMayBeSearched) {
  const std::string mark = "<|the end of the reasoning of the assistant|>";
  const std::string content = std::string(500'000, 'a') + mark + std::string(500'000, 'b');
  const auto text = RenderBounded("{% set m = '" + mark + R"(' %}{% for t in [messages[0].content] * 5 if m in t %}
{{ t.split(m)|length }} {{ t.rsplit(m, 1)[0]|length }} {{ t.replace(m, '')|length }} {{ t.find(m) }}
{{ t.strip('b')|trim('a') }}
{% endfor %})",
                                  {{"user", content}});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, Repeat("2 500000 1000000 500000\n" + mark + "\n", 5));
}

// 400 levels of evaluation are enough for real recursion.
TEST(ChatTemplateLimitsTest, ModerateRecursionWorks) {
  const auto text = RenderBounded(
      "{% macro m(n) %}{% if n > 0 %}{% for i in [1] %}{{ m(n - 1) }}{% endfor %}{% endif %}.{% endmacro %}{{ m(30) }}",
      {});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, std::string(31, '.'));
}

}  // namespace
}  // namespace moestro::text
