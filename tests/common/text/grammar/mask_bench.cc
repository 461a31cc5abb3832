// What masks cost for a real vocabulary: mask_bench FILE, a tokenizer.json or a tiktoken.model
// (of any model; its special tokens do not matter). For each constraint the
// text is cut into tokens, and the mask before each of them is timed: in the first request with the grammar, and in a
// second one that shares its inner masks.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/text/grammar/vocabulary_grammars.h"

namespace moestro::text::grammar {
namespace {

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Case {
  const char* name;
  Constraint::Kind kind;
  const char* constraint;
  const char* text;
};

constexpr const char* kTool =
    R"({"type":"object","properties":{"path":{"type":"string"},"recursive":{"type":"boolean"},"depth":{"type":"integer","minimum":0,"maximum":100},"filters":{"type":"array","items":{"type":"object","properties":{"field":{"enum":["name","size","owner"]},"value":{"type":"string"}},"required":["field","value"]}},"note":{"type":"string","maxLength":200}},"required":["path","recursive"]})";
constexpr const char* kCall =
    R"({"path": "/home/user/projects/moestro/build", "recursive": true, "depth": 42, "filters": [{"field": "name", "value": "a value that a model would write here"}, {"field": "size", "value": "10 MB"}], "note": "The quick brown fox jumps over the lazy dog, and then it does so once more; 12 times in all."})";
constexpr Case kCases[] = {
    {"JSON object", Constraint::Kind::kJsonObject, "", kCall},
    {"tool call", Constraint::Kind::kJsonSchema, kTool, kCall},
    {"regex of words", Constraint::Kind::kRegex, "([A-Za-z]+ )*[a-z]+\\.", "A sentence of plain words that ends here."},
    {"GBNF arithmetic", Constraint::Kind::kGrammar,
     "root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"", "(12+34)*(5-(6/7))+89"},
};

absl::Status GoOn() { return absl::OkStatus(); }

void Run(const Case& one, VocabularyGrammars& grammars, const Tokenizer& tokenizer) {
  const auto start = Clock::now();
  const auto grammar = grammars.Get({one.kind, one.constraint}, GoOn);
  if (!grammar.ok()) {
    std::printf("%s: %s\n", one.name, std::string(grammar.status().message()).c_str());
    return;
  }
  std::printf("%s: compiled in %.0f us\n", one.name, Microseconds(start));
  const auto ids = tokenizer.Encode(one.text, {.add_special_tokens = false, .parse_special_tokens = false}).value();
  for (const char* round : {"first", "second"}) {
    TokenConstraint constraint(*grammar, {});
    std::vector<double> times;
    for (const int32_t id : ids) {
      const auto before = Clock::now();
      const auto mask = constraint.Mask();
      times.push_back(Microseconds(before));
      if (!mask.ok() || !(*mask)->Allows(id) || !constraint.Advance(id).ok()) {
        std::printf("  the text does not match at token %zu\n", times.size());
        return;
      }
    }
    double sum = 0;
    for (const double time : times) sum += time;
    std::sort(times.begin(), times.end());
    std::printf("  %-6s request: %zu masks, mean %.1f us, median %.1f, p90 %.1f, greatest %.1f\n", round, times.size(),
                sum / static_cast<double>(times.size()), times[times.size() / 2], times[times.size() * 9 / 10],
                times.back());
  }
}

int Main(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const bool is_json = text.starts_with('{');
  const auto load = [&] {
    return Tokenizer::Create(is_json ? TokenizerFiles{.tokenizer_json = text}
                                     : TokenizerFiles{.tokenizer_json = {},
                                                      .tiktoken_ranks = text,
                                                      .tokenizer_config_json = "{}",
                                                      .model_type = "kimi_k2"});
  };
  auto tokenizer = load();
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s: %s\n", path, std::string(tokenizer.status().message()).c_str());
    return 1;
  }
  const auto start = Clock::now();
  const TokenTrie trie(**tokenizer, (*tokenizer)->size());
  std::printf("%d tokens, %u nodes, built in %.0f ms\n", (*tokenizer)->size(), trie.size(), Microseconds(start) / 1000);
  VocabularyGrammars grammars(load, (*tokenizer)->size());
  (void)grammars.Get({Constraint::Kind::kRegex, "a"}, GoOn);  // loads the vocabulary
  for (const Case& one : kCases) Run(one, grammars, **tokenizer);
  return 0;
}

}  // namespace
}  // namespace moestro::text::grammar

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s tokenizer.json | tiktoken.model\n", argv[0]);
    return 2;
  }
  return moestro::text::grammar::Main(argv[1]);
}
