#include "services/router/admission/choose_path.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace moestro::router {
namespace {

// The reason given for a long prompt: whether decode is in use.
const char* LoadReason(const PathSettings& settings, const NodeLoad& load) {
  return DecodeIsIdle(settings, load) ? "decode is idle" : "decode is in use";
}

std::string Describe(const NodeLoad& load) {
  const std::string counts = absl::StrFormat("decoding: %u, in prefill: %u", load.decoding, load.prefilling);
  if (load.decoding > 0) return counts;
  if (!load.decode_idle) return counts + ", decode has had no work yet";
  return counts + absl::StrFormat(", decode had work %.0f s ago", Seconds(*load.decode_idle));
}

}  // namespace

bool IsForPrefill(const PathSettings& settings, uint32_t new_tokens) {
  return !settings.unified && new_tokens >= settings.chunked_below_tokens;
}

bool DecodeIsIdle(const PathSettings& settings, const NodeLoad& load) {
  if (load.decoding > 0 || load.prefilling > 0) return false;
  return !load.decode_idle || *load.decode_idle >= settings.decode_idle_window;
}

PathChoice ChoosePath(const PathSettings& settings, const NodeLoad& load, uint32_t new_tokens, bool prefill_up) {
  const auto choice = [&](PrefillPath path, std::string reason) {
    return PathChoice{.path = path, .reason = std::move(reason), .load = Describe(load)};
  };
  if (settings.unified) {
    return choice(PrefillPath::kChunked, absl::StrFormat("%u new tokens, unified mode", new_tokens));
  }
  if (!IsForPrefill(settings, new_tokens)) {
    return choice(PrefillPath::kChunked,
                  absl::StrFormat("%u new tokens < %u", new_tokens, settings.chunked_below_tokens));
  }
  const std::string size = absl::StrFormat("%u new tokens >= %u", new_tokens, settings.chunked_below_tokens);
  if (!prefill_up) return choice(PrefillPath::kChunked, size + ", but prefill is down");
  const PrefillPath path = DecodeIsIdle(settings, load) ? PrefillPath::kWholeMachine : PrefillPath::kSplit;
  return choice(path, absl::StrCat(size, ", ", LoadReason(settings, load)));
}

std::vector<Role> NeededRoles(const PathSettings& settings) {
  if (settings.unified) return {Role::kDecode};
  return {kServingRoles.begin(), kServingRoles.end()};
}

}  // namespace moestro::router
