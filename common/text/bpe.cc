#include "common/text/bpe.h"

#include <functional>
#include <queue>
#include <utility>

#include "common/text/concat.h"
#include "common/text/utf8.h"

namespace moestro::text {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A doubly linked list in an array.
struct Symbol {
  int32_t id;
  int32_t previous;  // -1: none
  int32_t next;      // -1: none
};

constexpr int32_t kAbsorbed = -2;  // id of a symbol that was merged into its left neighbour

// The tokens that `piece` starts as; the links are not set.
absl::Status Start(const BpeAlphabet& alphabet, std::string_view piece, std::vector<Symbol>* symbols) {
  for (size_t i = 0; i < piece.size();) {
    size_t length = 1;
    if (!alphabet.code_points.empty()) {
      const Utf8Step step = ReadUtf8(piece, i);
      length = step.length;
      if (const auto found = alphabet.code_points.find(step.code_point); found != alphabet.code_points.end()) {
        symbols->push_back({found->second, -1, -1});
        i += length;
        continue;
      }
    }
    for (const char c : piece.substr(i, length)) {
      const auto byte = static_cast<unsigned char>(c);
      if (alphabet.bytes[byte] == Bpe::kNoToken) {
        return absl::InvalidArgumentError(Concat("the vocabulary has no token for byte ", int{byte}));
      }
      symbols->push_back({alphabet.bytes[byte], -1, -1});
    }
    i += length;
  }
  return absl::OkStatus();
}

}  // namespace

Bpe::Bpe(BpeAlphabet alphabet, const std::vector<BpeMerge>& merges) : alphabet_(std::move(alphabet)) {
  rules_.reserve(merges.size());
  for (const BpeMerge& merge : merges) rules_[PairKey(merge.left, merge.right)] = {merge.rank, merge.result};
}

const Bpe::Rule* Bpe::Find(int32_t left, int32_t right) const {
  const auto found = rules_.find(PairKey(left, right));
  return found == rules_.end() ? nullptr : &found->second;
}

absl::Status Bpe::Encode(std::string_view piece, std::vector<int32_t>* ids) const {
  if (static_cast<int64_t>(piece.size()) > kMaxPieceBytes) {
    return absl::InvalidArgumentError(Concat("a piece of ", piece.size(), " bytes is too long to tokenize"));
  }
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  if (absl::Status started = Start(alphabet_, piece, &symbols); !started.ok()) return started;
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }

  // Candidates as rank << 32 | position of the left symbol: the smallest is the next merge. A candidate is stale if its
  // pair has changed since: the pair at that position then has another rank.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> candidates;
  const auto rule_at = [&](int32_t i) -> const Rule* {
    return i >= 0 && symbols[i].next >= 0 ? Find(symbols[i].id, symbols[symbols[i].next].id) : nullptr;
  };
  const auto add_candidate = [&](int32_t i) {
    if (const Rule* rule = rule_at(i)) candidates.push(uint64_t{rule->rank} << 32 | static_cast<uint32_t>(i));
  };
  for (int32_t i = 0; i < count; ++i) add_candidate(i);
  while (!candidates.empty()) {
    const auto rank = static_cast<uint32_t>(candidates.top() >> 32);
    const auto i = static_cast<int32_t>(candidates.top());
    candidates.pop();
    const Rule* rule = rule_at(i);
    if (rule == nullptr || rule->rank != rank) continue;
    Symbol& left = symbols[i];
    Symbol& right = symbols[left.next];
    left.id = rule->result;
    left.next = right.next;
    if (right.next >= 0) symbols[right.next].previous = i;
    right = {kAbsorbed, -1, -1};
    add_candidate(left.previous);
    add_candidate(i);
  }
  for (int32_t i = 0; i >= 0 && i < count; i = symbols[i].next) ids->push_back(symbols[i].id);
  return absl::OkStatus();
}

}  // namespace moestro::text
