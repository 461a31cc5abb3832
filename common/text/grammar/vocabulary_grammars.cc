#include "common/text/grammar/vocabulary_grammars.h"

#include <algorithm>

#include "common/base/status.h"
#include "common/text/grammar/compile.h"

namespace moestro::text::grammar {
namespace {

// Those of a few clients with some tools each; at most 30 MB for each of the largest.
constexpr size_t kKept = 8;

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

absl::StatusOr<std::shared_ptr<VocabularyGrammar>> VocabularyGrammars::Get(const Constraint& constraint) {
  if (auto known = Find(constraint)) return known;
  MOE_ASSIGN_OR_RETURN(const std::shared_ptr<const TokenTrie> trie, Trie());
  MOE_ASSIGN_OR_RETURN(Automaton automaton, CompileConstraint(constraint));
  auto grammar = std::make_shared<VocabularyGrammar>(std::move(automaton), trie);
  if (auto known = Find(constraint)) return known;  // another request was first: share its masks
  const MutexLock lock(mutex_);
  recent_.push_front({constraint, grammar});
  if (recent_.size() > kKept) recent_.pop_back();
  return grammar;
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> Resume(VocabularyGrammars& grammars, const Constraint& constraint,
                                                        std::span<const int32_t> stop_ids,
                                                        std::span<const int32_t> tokens) {
  MOE_ASSIGN_OR_RETURN(auto grammar, grammars.Get(constraint));
  auto resumed = std::make_shared<TokenConstraint>(std::move(grammar), stop_ids);
  for (const int32_t token : tokens) MOE_RETURN_IF_ERROR(resumed->Advance(token));
  return resumed;
}

}  // namespace moestro::text::grammar
