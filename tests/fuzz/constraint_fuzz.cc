// libFuzzer: constraints of clients, as text. The first byte chooses the notation, the second how many of the last
// bytes are a text to follow. Nothing may crash, hang, or allow a text that has no end.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/text/grammar/compile.h"
#include "common/text/grammar/matcher.h"

namespace moestro::text::grammar {
namespace {

void Follow(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  Matcher matcher(automaton);
  Matcher::Configuration at = matcher.start();
  for (const char byte : text) {
    const Matcher::Configuration next = matcher.Next(at, static_cast<uint8_t>(byte));
    if (next != Matcher::kDead) at = matcher.Compact(next);
  }
  if (!matcher.status().ok() || matcher.MayEnd(at)) return;
  // Some byte must go on.
  for (int byte = 0; byte < 256; ++byte) {
    if (matcher.Next(at, static_cast<uint8_t>(byte)) != Matcher::kDead) return;
  }
  if (matcher.status().ok()) std::abort();
}

}  // namespace
}  // namespace moestro::text::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moestro;
  if (size < 2) return 0;
  constexpr Constraint::Kind kKinds[] = {Constraint::Kind::kJsonSchema, Constraint::Kind::kGrammar,
                                         Constraint::Kind::kRegex};
  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t followed = std::min<size_t>(data[1] % 64, input.size());
  text::grammar::CompileBudget budget;
  auto automaton = text::grammar::CompileConstraint(
      {kKinds[data[0] % 3], std::string(input.substr(0, input.size() - followed))}, budget);
  if (!automaton.ok()) return 0;
  text::grammar::Follow(std::make_shared<const text::grammar::Automaton>(*std::move(automaton)),
                        input.substr(input.size() - followed));
  return 0;
}
