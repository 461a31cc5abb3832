// Grammars compiled for the vocabulary of a model, kept for requests that have the same.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/work_lane.h"
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

  // Called every few milliseconds of a wait or of work. An error ends it.
  using Check = std::function<absl::Status()>;

  // Compiles in some milliseconds. The first constraint of the process takes a second, and the largest ones wait for
  // the lane of InBackground. Errors of CompileConstraint, of `load` and of `check`.
  absl::StatusOr<std::shared_ptr<VocabularyGrammar>> Get(const Constraint& constraint, const Check& check);

  // Runs `work` in the one thread for constraints that take long, which stands back for others. `check`: until then.
  absl::Status InBackground(absl::FunctionRef<absl::Status()> work, const Check& check);

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
  WorkLane background_{WorkLane::kBackground};
};

// The constraint of a request that has generated `tokens`. Errors of Get, and INVALID_ARGUMENT for tokens that do not
// follow it. Where the tokens take long, advances over them in the background.
absl::StatusOr<std::shared_ptr<TokenConstraint>> Resume(VocabularyGrammars& grammars, const Constraint& constraint,
                                                        std::span<const int32_t> stop_ids,
                                                        std::span<const int32_t> tokens,
                                                        const VocabularyGrammars::Check& check);

// TokenConstraint::Mask, in the background where it takes long.
absl::StatusOr<const TokenMask*> FindMask(VocabularyGrammars& grammars, TokenConstraint& constraint,
                                          const VocabularyGrammars::Check& check);

}  // namespace moestro::text::grammar
