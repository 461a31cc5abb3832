#include "common/text/grammar/token_constraint.h"

#include <algorithm>
#include <string_view>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/grammar/limits.h"

namespace moestro::text::grammar {
namespace {

// Masks that a request keeps. A string, a number or a run of spaces has one or two configurations for many tokens.
constexpr size_t kRecentMasks = 8;
// With more positions the trie is walked from all at once: their inner masks would cost more than they save.
constexpr size_t kMaxInnerMasks = 8;

}  // namespace

TokenConstraint::TokenConstraint(std::shared_ptr<VocabularyGrammar> grammar, std::span<const int32_t> stop_ids)
    : grammar_(std::move(grammar)),
      stop_ids_(stop_ids.begin(), stop_ids.end()),
      matcher_(grammar_->automaton),
      at_(matcher_.start()),
      to_strip_(grammar_->trie->stripped_spaces()) {}

bool TokenConstraint::IsStop(int32_t token) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end();
}

void TokenConstraint::Begin(const Effort& effort) {
  matcher_.Begin(effort);
  const Matcher::Configuration before = at_;
  at_ = matcher_.Compact(at_);
  if (at_ != before) recent_.clear();
}

void TokenConstraint::End() {
  steps_ = matcher_.steps();
  steps_so_far_ += steps_;
}

absl::Status TokenConstraint::CheckSteps() const {
  if (steps_so_far_ <= kMaskStepsOfRequest + tokens_ * kMaskStepsOfToken) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat("the grammar cannot be followed: finding the next tokens took ", steps_so_far_, " steps for ", tokens_,
             " tokens, and a request may take ", kMaskStepsOfRequest, " and ", kMaskStepsOfToken,
             " for each token; a grammar with fewer ways to go on at the same time takes fewer"));
}

absl::StatusOr<const TokenMask*> TokenConstraint::Mask(const Effort& effort) {
  MOE_RETURN_IF_ERROR(CheckSteps());
  Begin(effort);
  absl::StatusOr<const TokenMask*> mask = Find();
  End();
  return mask;
}

absl::Status TokenConstraint::Advance(int32_t token) {
  Begin({});
  absl::Status followed = Follow(token);
  End();
  return followed;
}

absl::StatusOr<const TokenMask*> TokenConstraint::Find() {
  if (finished_) {
    first_ = TokenMask(grammar_->trie->token_count());
    return &first_;
  }
  if (to_strip_ > 0) {
    first_ = Compute();
    MOE_RETURN_IF_ERROR(matcher_.status());
    return &first_;
  }
  const auto known = std::find_if(recent_.begin(), recent_.end(), [&](const auto& mask) { return mask.first == at_; });
  if (known != recent_.end()) return &known->second;
  TokenMask mask = Compute();
  MOE_RETURN_IF_ERROR(matcher_.status());
  if (recent_.size() == kRecentMasks) recent_.pop_front();
  recent_.emplace_back(at_, std::move(mask));
  return &recent_.back().second;
}

void TokenConstraint::AllowMatching(Matcher::Configuration from, uint32_t begin, uint32_t end, TokenMask* mask) {
  WalkTrie(*grammar_->trie, matcher_, from, begin, end, [&](uint32_t node, Matcher::Configuration) {
    for (const int32_t id : grammar_->trie->tokens(node)) mask->Allow(id);
  });
}

TokenMask TokenConstraint::Compute() {
  const TokenTrie& trie = *grammar_->trie;
  TokenMask mask(trie.token_count());
  uint32_t begin = 1, end = trie.size();
  // A space that is dropped from the text leads from the start to the start.
  for (int spaces = to_strip_; spaces > 0 && begin < end; --spaces) {
    uint32_t space = begin;
    while (space < end && trie.nodes()[space].byte != ' ') space = trie.nodes()[space].end;
    AllowMatching(at_, begin, std::min(space, end), &mask);
    if (space >= end) {
      begin = end;
      break;
    }
    AllowMatching(at_, trie.nodes()[space].end, end, &mask);
    for (const int32_t id : trie.tokens(space)) mask.Allow(id);
    begin = space + 1;
    end = trie.nodes()[space].end;
  }
  const std::vector<Matcher::Position> positions = matcher_.positions(at_);
  if (to_strip_ > 0 || positions.size() > kMaxInnerMasks) {
    AllowMatching(at_, begin, end, &mask);
  } else {
    for (const Matcher::Position& position : positions) {
      if (position.state < 0) continue;
      const std::shared_ptr<const InnerMask> inner = grammar_->masks.Get(position.state, matcher_);
      if (inner == nullptr) break;  // the matcher has the reason
      if (inner->is_many) mask.AllowAll(inner->many);
      for (const int32_t id : inner->few) mask.Allow(id);
      const Matcher::Configuration after = inner->exits.empty() ? Matcher::kDead : matcher_.After(position.callers);
      for (const uint32_t node : inner->exits) AllowMatching(after, node + 1, trie.nodes()[node].end, &mask);
    }
  }
  for (const int32_t id : stop_ids_) {
    if (id < 0 || id >= trie.token_count()) continue;
    MayEnd() ? mask.Allow(id) : mask.Forbid(id);
  }
  return mask;
}

absl::Status TokenConstraint::Follow(int32_t token) {
  const auto refuse = [&] {
    return absl::InvalidArgumentError(Concat("token ", token, " does not follow the constraint of the request"));
  };
  if (finished_) return refuse();
  if (IsStop(token)) {
    if (!MayEnd()) return refuse();
    finished_ = true;
    return absl::OkStatus();
  }
  std::string_view bytes = grammar_->trie->bytes(token);
  if (bytes.empty()) return refuse();
  int to_strip = to_strip_;
  for (; to_strip > 0 && !bytes.empty() && bytes.front() == ' '; --to_strip) bytes.remove_prefix(1);
  if (!bytes.empty()) to_strip = 0;
  Matcher::Configuration next = at_;
  for (const char byte : bytes) {
    next = matcher_.Next(next, static_cast<uint8_t>(byte));
    if (next == Matcher::kDead) break;
  }
  MOE_RETURN_IF_ERROR(matcher_.status());
  if (next == Matcher::kDead) return refuse();
  at_ = next;
  to_strip_ = to_strip;
  ++tokens_;
  return absl::OkStatus();
}

}  // namespace moestro::text::grammar
