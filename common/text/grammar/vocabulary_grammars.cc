#include "common/text/grammar/vocabulary_grammars.h"

#include <algorithm>
#include <limits>

#include "common/base/status.h"
#include "common/text/grammar/compile.h"
#include "common/text/grammar/limits.h"

namespace moestro::text::grammar {
namespace {

// Those of a few clients with some tools each; at most 30 MB for each of the largest.
constexpr size_t kKept = 8;

constexpr size_t kTokensBetweenChecks = 256;

bool Same(const Constraint& a, const Constraint& b) { return a.kind == b.kind && a.text == b.text; }

}  // namespace

absl::StatusOr<std::shared_ptr<const TokenTrie>> VocabularyGrammars::Trie() {
  const MutexLock lock(loading_);
  if (trie_ == nullptr) {
    MOE_ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer, load_());
    trie_ = std::make_shared<const TokenTrie>(*tokenizer, token_count_);
  }
  return trie_;
}

std::shared_ptr<VocabularyGrammar> VocabularyGrammars::Find(const Constraint& constraint) {
  const MutexLock lock(mutex_);
  const auto found = std::find_if(recent_.begin(), recent_.end(),
                                  [&](const Entry& entry) { return Same(entry.constraint, constraint); });
  if (found == recent_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found);
  return recent_.front().grammar;
}

absl::Status VocabularyGrammars::InBackground(absl::FunctionRef<absl::Status()> work, const Check& check) {
  return background_.Run(work, check);
}

absl::StatusOr<std::shared_ptr<VocabularyGrammar>> VocabularyGrammars::Get(const Constraint& constraint,
                                                                           const Check& check) {
  if (auto known = Find(constraint)) return known;
  MOE_ASSIGN_OR_RETURN(const std::shared_ptr<const TokenTrie> trie, Trie());
  std::shared_ptr<VocabularyGrammar> grammar;
  const auto compile = [&](CompileBudget& budget) -> absl::Status {
    MOE_ASSIGN_OR_RETURN(Automaton automaton, CompileConstraint(constraint, budget));
    grammar = std::make_shared<VocabularyGrammar>(std::move(automaton), trie);
    return absl::OkStatus();
  };
  CompileBudget quick = CompileBudget::Quick();
  absl::Status compiled = compile(quick);
  if (quick.is_interrupted()) {
    CompileBudget whole(check);
    compiled = InBackground(
        [&]() -> absl::Status {
          grammar = Find(constraint);  // those who asked first were first in the line
          return grammar != nullptr ? absl::OkStatus() : compile(whole);
        },
        check);
  }
  MOE_RETURN_IF_ERROR(compiled);
  if (auto known = Find(constraint)) return known;  // another request was first: share its masks
  const MutexLock lock(mutex_);
  recent_.push_front({constraint, grammar});
  if (recent_.size() > kKept) recent_.pop_back();
  return grammar;
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> Resume(VocabularyGrammars& grammars, const Constraint& constraint,
                                                        std::span<const int32_t> stop_ids,
                                                        std::span<const int32_t> tokens,
                                                        const VocabularyGrammars::Check& check) {
  MOE_ASSIGN_OR_RETURN(auto grammar, grammars.Get(constraint, check));
  auto resumed = std::make_shared<TokenConstraint>(std::move(grammar), stop_ids);
  size_t next = 0;
  const auto advance = [&](int64_t most_steps) -> absl::Status {
    for (; next < tokens.size() && most_steps >= 0; ++next) {
      MOE_RETURN_IF_ERROR(resumed->Advance(tokens[next]));
      most_steps -= resumed->steps();
      if (next % kTokensBetweenChecks == 0) MOE_RETURN_IF_ERROR(check());
    }
    return absl::OkStatus();
  };
  MOE_RETURN_IF_ERROR(advance(kQuickMaskSteps));
  if (next < tokens.size()) {
    const auto rest = [&] { return advance(std::numeric_limits<int64_t>::max()); };
    MOE_RETURN_IF_ERROR(grammars.InBackground(rest, check));
  }
  return resumed;
}

absl::StatusOr<const TokenMask*> FindMask(VocabularyGrammars& grammars, TokenConstraint& constraint,
                                          const VocabularyGrammars::Check& check) {
  absl::StatusOr<const TokenMask*> mask = constraint.Mask({.steps = kQuickMaskSteps});
  if (!absl::IsResourceExhausted(mask.status())) return mask;
  const auto find = [&] {
    mask = constraint.Mask();
    return absl::OkStatus();
  };
  MOE_RETURN_IF_ERROR(grammars.InBackground(find, check));
  return mask;
}

}  // namespace moestro::text::grammar
