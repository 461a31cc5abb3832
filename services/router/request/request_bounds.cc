#include "services/router/request/request_bounds.h"

#include <sstream>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/text/grammar/limits.h"

namespace moestro::router {
namespace {

constexpr char kOverContext[] = "moestro/over-context";
constexpr size_t kMaxStopIds = 256;
constexpr size_t kMaxStopTexts = 16;
constexpr size_t kMaxStopTextBytes = 256;
constexpr size_t kMaxLogitBiases = 1024;
constexpr size_t kMaxCacheScopeBytes = 64;
constexpr size_t kMaxRequestIdBytes = 64;

absl::Status Over(const std::string& field, size_t most, const char* unit) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": has more than ", most, " ", unit));
}

absl::Status Marked(absl::Status status, const OverContext& over) {
  status.SetPayload(kOverContext,
                    absl::Cord(absl::StrCat(over.tokens, " ", over.is_exact, " ", over.context, " ", over.is_of_key)));
  return status;
}

// Of what has at least `tokens` tokens. It is not exact: whoever counts on the wire ends here.
absl::Status NoRoom(const ServedModel& model, const std::string& field, size_t most, const char* unit, size_t tokens) {
  const absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, ": has more than ", most, " ", unit,
                                                                      ", the most that the model's context of ",
                                                                      model.max_context_tokens, " tokens can hold"));
  return Marked(status, {.tokens = tokens, .is_exact = false, .context = model.max_context_tokens});
}

}  // namespace

absl::Status CheckBound(const ServedModel& model, Quantity quantity, const std::string& field, size_t amount) {
  const size_t context = model.max_context_tokens;
  switch (quantity) {
    case Quantity::kTextBytes: {
      const size_t longest = model.text->longest_token_bytes();
      const size_t most = MostCountedTokens(model) * longest;
      return amount <= most ? absl::OkStatus() : NoRoom(model, field, most, "bytes", (amount - 1) / longest + 1);
    }
    case Quantity::kTokenIds:
      return amount <= context ? absl::OkStatus() : NoRoom(model, field, context, "ids", amount);
    case Quantity::kMessages:
      return amount <= context ? absl::OkStatus() : NoRoom(model, field, context, "messages", amount);
    case Quantity::kToolCalls:
      return amount <= context ? absl::OkStatus() : NoRoom(model, field, context, "calls", amount);
    case Quantity::kStopIds:
      return amount <= kMaxStopIds ? absl::OkStatus() : Over(field, kMaxStopIds, "ids");
    case Quantity::kStopTexts:
      return amount <= kMaxStopTexts ? absl::OkStatus() : Over(field, kMaxStopTexts, "texts");
    case Quantity::kStopTextBytes:
      return amount <= kMaxStopTextBytes ? absl::OkStatus() : Over(field, kMaxStopTextBytes, "bytes in one text");
    case Quantity::kLogitBiases:
      return amount <= kMaxLogitBiases ? absl::OkStatus() : Over(field, kMaxLogitBiases, "token ids");
    case Quantity::kCacheScopeBytes:
      return amount <= kMaxCacheScopeBytes ? absl::OkStatus() : Over(field, kMaxCacheScopeBytes, "bytes");
    case Quantity::kRequestIdBytes:
      return amount <= kMaxRequestIdBytes ? absl::OkStatus() : Over(field, kMaxRequestIdBytes, "bytes");
    case Quantity::kConstraintBytes:
      break;
  }
  return amount <= text::grammar::kMaxConstraintBytes ? absl::OkStatus()
                                                      : Over(field, text::grammar::kMaxConstraintBytes, "bytes");
}

absl::Status OverContextError(const std::string& field, const OverContext& over) {
  return Marked(absl::InvalidArgumentError(absl::StrCat(
                    field, ": has ", over.is_exact ? "" : "at least ", over.tokens, " tokens, and ",
                    over.is_of_key ? "the API key allows " : "the model's context has ", over.context,
                    over.is_of_key ? " (context)" : "", over.tokens == over.context ? ": none can be generated" : "")),
                over);
}

std::optional<OverContext> OverContextOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kOverContext);
  if (!payload) return std::nullopt;
  OverContext over;
  std::istringstream(std::string(*payload)) >> over.tokens >> over.is_exact >> over.context >> over.is_of_key;
  return over;
}

size_t MostCountedTokens(const ServedModel& model) { return size_t{model.max_context_tokens} + (size_t{256} << 10); }

}  // namespace moestro::router
