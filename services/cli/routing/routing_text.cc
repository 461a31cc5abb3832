#include "services/cli/routing/routing_text.h"

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"

namespace moestro::cli {
namespace {

constexpr int64_t kMaxLayer = 1023;

// One line: the experts of a token in a layer.
struct Row {
  uint32_t sequence = 0;
  size_t order = 0;  // of the sequence, by its first line
  uint32_t position = 0;
  int64_t layer = 0;
  int64_t line = 0;
  size_t choices = 0;  // begin in Reader::choices_
};

class Reader {
 public:
  explicit Reader(int64_t experts) : experts_(experts) {}

  absl::Status Read(std::istream& text) {
    std::string line;
    for (int64_t number = 1; std::getline(text, line); ++number) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::ByAnyChar(" \t,"), absl::SkipEmpty());
      if (fields.empty() || fields[0][0] == '#') continue;
      MOE_RETURN_IF_ERROR(Annotate(ReadRow(fields, number), absl::StrFormat("line %d", number)));
    }
    return rows_.empty() ? absl::InvalidArgumentError("no line names experts") : absl::OkStatus();
  }

  absl::StatusOr<RoutingText> Finish() {
    std::ranges::sort(rows_, {},
                      [](const Row& row) { return std::tuple(row.order, row.position, row.layer, row.line); });
    RoutingText text;
    const std::vector<int64_t> layers = Layers();
    text.model = {.fingerprint = "imported",
                  .first_moe_layer = layers.front(),
                  .moe_layers = std::ssize(layers),
                  .num_experts = experts_,
                  .experts_per_token = per_token_};
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      const size_t index = i % layers.size();
      const bool follows = i > 0 && row.order == rows_[i - 1].order && row.position == rows_[i - 1].position;
      const bool same = index == 0 || follows;
      if (!same || row.layer != layers[index]) return LayerError(i, layers[index], same);
      if (index == 0 && follows) return LayerError(i, row.layer, /*same=*/true);  // the only layer, again
      if (index == 0) text.tokens.push_back({row.sequence, row.position, false});
      const auto begin = choices_.begin() + static_cast<std::ptrdiff_t>(row.choices);
      text.choices.insert(text.choices.end(), begin, begin + per_token_);
    }
    if (rows_.size() % layers.size() != 0) return LayerError(rows_.size(), layers[rows_.size() % layers.size()], false);
    return text;
  }

 private:
  template <typename T>
  static absl::Status ReadNumber(const char* what, absl::string_view field, int64_t most, T& to) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(field, &value) || value < 0 || value > most) {
      return absl::InvalidArgumentError(absl::StrFormat("%s \"%s\": expected a number, 0 to %d", what, field, most));
    }
    to = static_cast<T>(value);
    return absl::OkStatus();
  }

  absl::Status ReadRow(const std::vector<absl::string_view>& fields, int64_t line) {
    constexpr size_t kNames = 3;
    if (fields.size() <= kNames) {
      return absl::InvalidArgumentError("expected a sequence, a token, a layer and experts");
    }
    Row row{.line = line, .choices = choices_.size()};
    constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
    MOE_RETURN_IF_ERROR(ReadNumber("sequence", fields[0], kMost, row.sequence));
    MOE_RETURN_IF_ERROR(ReadNumber("token", fields[1], kMost, row.position));
    MOE_RETURN_IF_ERROR(ReadNumber("layer", fields[2], kMaxLayer, row.layer));
    row.order = order_.try_emplace(row.sequence, order_.size()).first->second;
    const auto count = static_cast<int64_t>(fields.size() - kNames);
    if (per_token_ == 0) per_token_ = count;
    if (count != per_token_) {
      return absl::InvalidArgumentError(absl::StrFormat("%d experts; earlier lines have %d", count, per_token_));
    }
    for (size_t i = kNames; i < fields.size(); ++i) MOE_RETURN_IF_ERROR(ReadExpert(fields[i]));
    const auto begin = choices_.begin() + static_cast<std::ptrdiff_t>(row.choices);
    std::sort(begin, choices_.end(), [](const auto& a, const auto& b) { return a.expert < b.expert; });
    const auto twice =
        std::adjacent_find(begin, choices_.end(), [](const auto& a, const auto& b) { return a.expert == b.expert; });
    if (twice != choices_.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("names expert %d twice", twice->expert));
    }
    rows_.push_back(row);
    return absl::OkStatus();
  }

  absl::Status ReadExpert(absl::string_view field) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(field, absl::MaxSplits(':', 1));
    model::ExpertChoice choice{.weight = 1.0f / static_cast<float>(per_token_)};
    MOE_RETURN_IF_ERROR(ReadNumber("expert", parts.first, experts_ - 1, choice.expert));
    if (parts.first.size() < field.size() && !absl::SimpleAtof(parts.second, &choice.weight)) {
      return absl::InvalidArgumentError(absl::StrFormat("weight \"%s\": expected a number", parts.second));
    }
    choices_.push_back(choice);
    return absl::OkStatus();
  }

  // Of all rows, ascending.
  std::vector<int64_t> Layers() const {
    std::vector<bool> named(kMaxLayer + 1);
    for (const Row& row : rows_) named[static_cast<size_t>(row.layer)] = true;
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer <= kMaxLayer; ++layer) {
      if (named[static_cast<size_t>(layer)]) layers.push_back(layer);
    }
    return layers;
  }

  // Of a token that lacks a layer, or has one twice: where its rows end in `at`, or at a row that is not the wanted
  // one.
  absl::Status LayerError(size_t at, int64_t wanted, bool same) const {
    const Row& token = rows_[same ? at : at - 1];
    const bool twice = same && at > 0 && rows_[at - 1].layer == rows_[at].layer && rows_[at - 1].order == token.order &&
                       rows_[at - 1].position == token.position;
    return absl::InvalidArgumentError(absl::StrFormat("line %d: token %d of sequence %d has %s layer %d", token.line,
                                                      token.position, token.sequence, twice ? "twice" : "no experts in",
                                                      twice ? token.layer : wanted));
  }

  const int64_t experts_;
  int64_t per_token_ = 0;
  std::vector<Row> rows_;
  std::vector<model::ExpertChoice> choices_;
  std::unordered_map<uint32_t, size_t> order_;  // of sequences
};

}  // namespace

absl::StatusOr<RoutingText> ReadRoutingText(std::istream& text, int64_t experts) {
  Reader reader(experts);
  MOE_RETURN_IF_ERROR(reader.Read(text));
  return reader.Finish();
}

absl::Status WritePasses(const RoutingText& text, const RoutingPasses& passes, model::RoutingTraceWriter& writer) {
  const int64_t per_token = text.model.choices_per_token();
  model::RoutingStep step;
  const auto add = [&](int64_t token, bool prompt) {
    step.tokens.push_back(text.tokens[static_cast<size_t>(token)]);
    step.tokens.back().prompt = prompt;
    const auto begin = text.choices.begin() + token * per_token;
    step.choices.insert(step.choices.end(), begin, begin + per_token);
  };
  const auto end_pass = [&] {
    const absl::Status status = step.tokens.empty() ? absl::OkStatus() : writer.Append(step);
    step = {};
    return status;
  };
  std::vector<int64_t> begins;  // of the sequences, and the end
  for (int64_t i = 0; i < std::ssize(text.tokens); ++i) {
    const size_t at = static_cast<size_t>(i);
    if (i == 0 || text.tokens[at].sequence != text.tokens[at - 1].sequence) begins.push_back(i);
  }
  begins.push_back(std::ssize(text.tokens));
  const int64_t sequences = std::ssize(begins) - 1;
  for (int64_t first = 0; first < sequences; first += passes.together) {
    const int64_t last = std::min(first + passes.together, sequences);
    int64_t most = 0;  // tokens that one of them generates
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = begins[static_cast<size_t>(i)], end = begins[static_cast<size_t>(i + 1)];
      for (int64_t token = begin; token < std::min(begin + passes.prompt_tokens, end); ++token) {
        add(token, /*prompt=*/true);
        if (std::ssize(step.tokens) == model::kMaxPassTokens) MOE_RETURN_IF_ERROR(end_pass());
      }
      MOE_RETURN_IF_ERROR(end_pass());
      most = std::max(most, end - begin - passes.prompt_tokens);
    }
    for (int64_t generated = 0; generated < most; ++generated) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t token = begins[static_cast<size_t>(i)] + passes.prompt_tokens + generated;
        if (token < begins[static_cast<size_t>(i + 1)]) add(token, /*prompt=*/false);
      }
      MOE_RETURN_IF_ERROR(end_pass());
    }
  }
  return absl::OkStatus();
}

}  // namespace moestro::cli
