#include "common/text/grammar/json_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/text/concat.h"
#include "common/text/utf8.h"

namespace moestro::text::grammar {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr char32_t kFirstPrintable = 0x20;

// Characters that a JSON string spells with a backslash and one letter.
struct ShortEscape {
  char32_t code_point;
  char letter;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

CodePointSet Unescaped() { return CodePointSet({{kFirstPrintable, kMaxCodePoint}}).Without(CodePointSet::Of("\"\\")); }

std::vector<char32_t> CodePoints(std::string_view text) {
  std::vector<char32_t> points;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = ReadUtf8(text, offset);
    points.push_back(step.code_point);
    offset += step.length;
  }
  return points;
}

}  // namespace

template <typename Make>
NodeId JsonText::Shared(const char* name, Make make) {
  auto found = shared_.find(std::string_view(name));
  if (found == shared_.end()) {
    found = shared_.emplace(name, grammar_.AddRule(Concat("(", name, ")"))).first;  // may call itself
    const RuleId rule = found->second;
    grammar_.Define(rule, make());
    return grammar_.Call(rule);
  }
  return grammar_.Call(found->second);
}

NodeId JsonText::Space() {
  return Shared("space", [&] {
    const NodeId indentation = grammar_.Repeat(grammar_.Class(CodePointSet::Of(" \t")), 0, 20);
    const NodeId lines = grammar_.Repeat(grammar_.Bytes("\n"), 1, 2);
    return grammar_.Optional(grammar_.Alternatives({grammar_.Bytes(" "), grammar_.Sequence({lines, indentation})}));
  });
}

NodeId JsonText::Value() {
  return Shared("value", [&] {
    return grammar_.Alternatives({Object(), Array(), String(), Number(), Boolean(), Null()});
  });
}

NodeId JsonText::Pair(NodeId key, NodeId value) {
  return grammar_.Sequence({key, grammar_.Bytes(":"), Space(), value});
}

NodeId JsonText::List(NodeId item, const char* open, const char* close) {
  const NodeId more = grammar_.Sequence({grammar_.Bytes(","), Space(), item});
  const NodeId items = grammar_.Sequence({Space(), item, grammar_.Repeat(more, 0, Grammar::kUnbounded)});
  return grammar_.Sequence({grammar_.Bytes(open), grammar_.Optional(items), Space(), grammar_.Bytes(close)});
}

NodeId JsonText::Object() {
  return Shared("object", [&] { return List(Pair(String(), Value()), "{", "}"); });
}

NodeId JsonText::Array() {
  return Shared("array", [&] { return List(Value(), "[", "]"); });
}

NodeId JsonText::StringOf(NodeId content) {
  return grammar_.Sequence({grammar_.Bytes("\""), content, grammar_.Bytes("\"")});
}

NodeId JsonText::String() {
  return Shared("string", [&] {
    const NodeId hex = grammar_.Class(CodePointSet::Of("0123456789abcdefABCDEF"));
    const NodeId hex2 = grammar_.Sequence({hex, hex});
    const auto set = [&](std::string_view characters) { return grammar_.Class(CodePointSet::Of(characters)); };
    const NodeId d = set("dD");
    // Half a surrogate pair is no text.
    const NodeId unit = grammar_.Alternatives(
        {grammar_.Sequence({set("0123456789abcefABCEF"), hex, hex2}), grammar_.Sequence({d, set("01234567"), hex2}),
         grammar_.Sequence({d, set("89abAB"), hex2, grammar_.Bytes("\\u"), d, set("cdefCDEF"), hex2})});
    const NodeId escape =
        grammar_.Sequence({grammar_.Bytes("\\"),
                           grammar_.Alternatives({set("\"\\/bfnrt"), grammar_.Sequence({grammar_.Bytes("u"), unit})})});
    const NodeId character = grammar_.Alternatives({grammar_.Class(Unescaped()), escape});
    return StringOf(grammar_.Repeat(character, 0, Grammar::kUnbounded));
  });
}

NodeId JsonText::Character(Grammar& grammar, const CodePointSet& set) {
  constexpr size_t kFew = 8;
  std::vector<NodeId> ways;
  const CodePointSet plain = set.Intersection(Unescaped());
  if (!plain.empty()) ways.push_back(grammar.Class(plain));
  std::string letters;
  for (const ShortEscape& escape : kShortEscapes) {
    if (set.Contains(escape.code_point)) letters += escape.letter;
  }
  if (!letters.empty()) {
    ways.push_back(grammar.Sequence({grammar.Bytes("\\"), grammar.Class(CodePointSet::Of(letters))}));
  }
  if (set.Count() <= kFew) {
    for (char32_t control = 0; control < kFirstPrintable; ++control) {
      const bool is_short = std::any_of(std::begin(kShortEscapes), std::end(kShortEscapes),
                                        [&](const ShortEscape& escape) { return escape.code_point == control; });
      if (is_short || !set.Contains(control)) continue;
      ways.push_back(grammar.Bytes(std::string("\\u00") + kHexDigits[control / 16] + kHexDigits[control % 16]));
    }
  }
  return ways.empty() ? grammar.Class({}) : grammar.Alternatives(std::move(ways));
}

NodeId JsonText::Characters(uint32_t min, uint32_t max) {
  constexpr uint32_t kWritten = 256;  // without a call for each
  if (min <= kWritten && (max <= kWritten || max == Grammar::kUnbounded)) {
    return grammar_.Repeat(Character(grammar_, CodePointSet::All()), min, max);
  }
  if (character_ < 0) character_ = Shared("character", [&] { return Character(grammar_, CodePointSet::All()); });
  return Times(character_, min, max);
}

NodeId JsonText::Times(NodeId part, uint32_t min, uint32_t max) {
  constexpr uint32_t kWritten = 1024, kBlock = 64, kLarge = kBlock * kBlock;
  const bool is_bound = max != Grammar::kUnbounded;
  if (min <= kWritten && (!is_bound || max <= kWritten)) return grammar_.Repeat(part, min, max);
  auto found = blocks_.find(part);
  if (found == blocks_.end()) {
    const NodeId small = grammar_.Call(grammar_.AddRule("(block)", grammar_.Repeat(part, kBlock, kBlock)));
    const NodeId large = grammar_.Call(grammar_.AddRule("(large block)", grammar_.Repeat(small, kBlock, kBlock)));
    found = blocks_.emplace(part, Blocks{small, large}).first;
  }
  const auto [small, large] = found->second;
  std::vector<NodeId> row;
  const auto add = [&](NodeId node, uint32_t least, uint32_t most) {
    if (most > 0) row.push_back(grammar_.Repeat(node, least, most));
  };
  add(large, min / kLarge, min / kLarge);
  add(small, min % kLarge / kBlock, min % kLarge / kBlock);
  add(part, min % kBlock, min % kBlock);
  const uint32_t more = max - min;
  if (!is_bound) {
    add(part, 0, Grammar::kUnbounded);
  } else if (more < kBlock) {
    add(part, 0, more);
  } else {
    // Whole blocks, and less than one: up to one block less than `more`, which no answer notices.
    const uint32_t larges = (more + 1) / kLarge > 0 ? (more + 1) / kLarge - 1 : 0;
    add(large, 0, larges);
    add(small, 0, (more - larges * kLarge - (kBlock - 1)) / kBlock);
    add(part, 0, kBlock - 1);
  }
  return grammar_.Sequence(std::move(row));
}

NodeId JsonText::StringExcept(const std::vector<std::string>& names) {
  std::vector<std::vector<char32_t>> sorted;
  for (const std::string& name : names) sorted.push_back(CodePoints(name));
  std::sort(sorted.begin(), sorted.end());
  const NodeId any = grammar_.Repeat(Character(grammar_, CodePointSet::All()), 0, Grammar::kUnbounded);
  // What may follow the first `depth` characters, which the names [begin, end) share: a character that none of them
  // has, and anything; or one that some have, and what may follow that; or nothing, unless it is one of them.
  const auto rest = [&](const auto& self, size_t begin, size_t end, size_t depth) -> NodeId {
    std::vector<NodeId> ways;
    std::vector<CodePointSet::Range> taken;
    const bool is_name = sorted[begin].size() == depth;
    while (begin < end && sorted[begin].size() == depth) ++begin;
    while (begin < end) {
      const char32_t next = sorted[begin][depth];
      size_t same = begin;
      while (same < end && sorted[same][depth] == next) ++same;
      taken.push_back({next, next});
      const NodeId tail = self(self, begin, same, depth + 1);
      ways.push_back(grammar_.Sequence({Character(grammar_, CodePointSet({{next, next}})), tail}));
      begin = same;
    }
    ways.push_back(grammar_.Sequence({Character(grammar_, CodePointSet(std::move(taken)).Complement()), any}));
    if (!is_name) ways.push_back(grammar_.Bytes(""));
    return grammar_.Alternatives(std::move(ways));
  };
  return StringOf(sorted.empty() ? any : rest(rest, 0, sorted.size(), 0));
}

NodeId JsonText::Boolean() { return grammar_.Alternatives({grammar_.Bytes("true"), grammar_.Bytes("false")}); }

}  // namespace moestro::text::grammar
