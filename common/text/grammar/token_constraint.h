// Which tokens one request may generate, so that its whole text matches a grammar.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/grammar/automaton.h"
#include "common/text/grammar/inner_masks.h"
#include "common/text/grammar/matcher.h"
#include "common/text/grammar/token_mask.h"
#include "common/text/grammar/token_trie.h"

namespace moestro::text::grammar {

// A compiled grammar for one vocabulary, shared by the requests that have it. Thread-safe.
struct VocabularyGrammar {
  VocabularyGrammar(Automaton compiled, std::shared_ptr<const TokenTrie> vocabulary)
      : automaton(std::make_shared<const Automaton>(std::move(compiled))), trie(std::move(vocabulary)), masks(trie) {}

  std::shared_ptr<const Automaton> automaton;
  std::shared_ptr<const TokenTrie> trie;
  InnerMasks masks;
};

// What may come next is a function of the tokens so far alone: a request that resumes elsewhere advances over its
// tokens again. Not thread-safe.
class TokenConstraint {
 public:
  // `stop_ids` end a text. They are allowed where the grammar may end, and nowhere else.
  TokenConstraint(std::shared_ptr<VocabularyGrammar> grammar, std::span<const int32_t> stop_ids);

  // The tokens that may follow; valid until the next call. A text that may end here, but has no stop id to end it with,
  // may have an empty mask. INVALID_ARGUMENT: the grammar is too ambiguous, the text nests too deep, or the masks of
  // the request take too many steps in all (limits.h). RESOURCE_EXHAUSTED: `effort` was spent. The next call repeats
  // little of the work.
  absl::StatusOr<const TokenMask*> Mask(const Effort& effort = {});
  // That the last call of Mask or Advance took.
  int64_t steps() const { return steps_; }

  // INVALID_ARGUMENT for a token that the mask does not allow; then nothing changes.
  absl::Status Advance(int32_t token);

  // The text so far matches the whole grammar.
  bool MayEnd() const { return matcher_.MayEnd(at_); }
  // A stop id has ended the text.
  bool finished() const { return finished_; }

 private:
  bool IsStop(int32_t token) const;
  // Begins to count the steps of a call, and forgets what earlier ones have left.
  void Begin(const Effort& effort);
  void End();
  absl::StatusOr<const TokenMask*> Find();
  absl::Status Follow(int32_t token);
  absl::Status CheckSteps() const;
  TokenMask Compute();
  // Adds the tokens of [begin, end), which hang below one node of the trie, that match from a configuration on.
  void AllowMatching(Matcher::Configuration from, uint32_t begin, uint32_t end, TokenMask* mask);

  std::shared_ptr<VocabularyGrammar> grammar_;
  std::vector<int32_t> stop_ids_;
  Matcher matcher_;
  Matcher::Configuration at_;
  int to_strip_;  // spaces that still belong to no text
  bool finished_ = false;
  int64_t tokens_ = 0;  // of the text
  int64_t steps_ = 0;
  int64_t steps_so_far_ = 0;                                         // of all calls
  std::deque<std::pair<Matcher::Configuration, TokenMask>> recent_;  // masks after to_strip_ became 0
  TokenMask first_;
};

}  // namespace moestro::text::grammar
