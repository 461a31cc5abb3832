// Grammars compiled for the vocabulary of a model, kept for requests that have the same.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/inference/types.h"
#include "common/text/grammar/token_constraint.h"
#include "common/text/tokenizer.h"

namespace moestro::text::grammar {

// Thread-safe. A process that never sees a constraint loads no tokenizer.
class VocabularyGrammars {
 public:
  using LoadTokenizer = std::function<absl::StatusOr<std::unique_ptr<const Tokenizer>>()>;

  // Calls `load` at the first constraint, and again after an error. `token_count`: rows of the model's head.
  VocabularyGrammars(LoadTokenizer load, int32_t token_count) : load_(std::move(load)), token_count_(token_count) {}

  // Compiles, or waits while another thread does: some milliseconds, a second for the first constraint and for the
  // largest ones. Errors of CompileConstraint and of `load`.
  absl::StatusOr<std::shared_ptr<VocabularyGrammar>> Get(const Constraint& constraint);

 private:
  struct Entry {
    Constraint constraint;
    std::shared_ptr<VocabularyGrammar> grammar;
  };
  absl::StatusOr<std::shared_ptr<const TokenTrie>> Trie();
  std::shared_ptr<VocabularyGrammar> Find(const Constraint& constraint);

  const LoadTokenizer load_;
  const int32_t token_count_;
  Mutex loading_;
  std::shared_ptr<const TokenTrie> trie_ ABSL_GUARDED_BY(loading_);
  Mutex mutex_;
  std::list<Entry> recent_ ABSL_GUARDED_BY(mutex_);  // the latest first
};

// The constraint of a request that has generated `tokens`. Errors of Get, and INVALID_ARGUMENT for tokens that do not
// follow it.
absl::StatusOr<std::shared_ptr<TokenConstraint>> Resume(VocabularyGrammars& grammars, const Constraint& constraint,
                                                        std::span<const int32_t> stop_ids,
                                                        std::span<const int32_t> tokens);

}  // namespace moestro::text::grammar
