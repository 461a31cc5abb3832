#include "services/router/policy/choose_path.h"

#include "absl/strings/str_format.h"

namespace moestro {
namespace {

// What decode is or is not doing, and what follows for a prompt that goes to prefill.
std::string LoadReason(const PathSettings& settings, const NodeLoad& load) {
  if (load.decoding > 0) return absl::StrFormat("decode is busy (running: %u)", load.decoding);
  if (load.prefilling > 0)
    return absl::StrFormat("decode will be busy (prompts ahead in prefill: %u)", load.prefilling);
  if (!load.decode_idle) return "decode has had no work yet";
  return absl::StrFormat("decode had work %.0f s ago (window %.0f s)", Seconds(*load.decode_idle),
                         Seconds(settings.decode_idle_window));
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
  if (settings.unified) return {PrefillPath::kChunked, absl::StrFormat("%u new tokens, unified mode", new_tokens)};
  if (!IsForPrefill(settings, new_tokens)) {
    return {PrefillPath::kChunked, absl::StrFormat("%u new tokens < %u", new_tokens, settings.chunked_below_tokens)};
  }
  const std::string size = absl::StrFormat("%u new tokens >= %u", new_tokens, settings.chunked_below_tokens);
  if (!prefill_up) return {PrefillPath::kChunked, size + ", but prefill is down"};
  const PrefillPath path = DecodeIsIdle(settings, load) ? PrefillPath::kWholeMachine : PrefillPath::kSplit;
  return {path, size + ", " + LoadReason(settings, load)};
}

std::vector<Role> NeededRoles(const PathSettings& settings) {
  if (settings.unified) return {Role::kDecode};
  return {kServingRoles.begin(), kServingRoles.end()};
}

}  // namespace moestro
