#include "services/router/request/request_bounds.h"

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

absl::Status OverContext(const ServedModel& model, const std::string& field, size_t most, const char* unit) {
  return MarkOverContext(absl::InvalidArgumentError(absl::StrCat(field, ": has more than ", most, " ", unit,
                                                                 ", the most that the model's context of ",
                                                                 model.max_context_tokens, " tokens can hold")));
}

}  // namespace

absl::Status CheckBound(const ServedModel& model, Quantity quantity, const std::string& field, size_t amount) {
  const size_t context = model.max_context_tokens;
  switch (quantity) {
    case Quantity::kTextBytes: {
      const size_t most = context * model.text->longest_token_bytes();
      return amount <= most ? absl::OkStatus() : OverContext(model, field, most, "bytes");
    }
    case Quantity::kTokenIds:
      return amount <= context ? absl::OkStatus() : OverContext(model, field, context, "ids");
    case Quantity::kMessages:
      return amount <= context ? absl::OkStatus() : OverContext(model, field, context, "messages");
    case Quantity::kToolCalls:
      return amount <= context ? absl::OkStatus() : OverContext(model, field, context, "calls");
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

bool IsOverContext(const absl::Status& status) { return status.GetPayload(kOverContext).has_value(); }

absl::Status MarkOverContext(absl::Status status) {
  status.SetPayload(kOverContext, absl::Cord());
  return status;
}

absl::Status TooManyTokens(const ServedModel& model, const std::string& field) {
  return OverContext(model, field, model.max_context_tokens, "tokens");
}

}  // namespace moestro::router
