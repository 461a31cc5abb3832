#include "services/router/http/api.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/text/json/quoted.h"

namespace moestro::router {

absl::Status WithPeers(const HttpApi& api, ClientCall& call, absl::FunctionRef<absl::Status(CallPeers)> run) {
  MOE_CHECK(call.tenant() != nullptr);
  const std::unique_ptr<PrefillPeer> prefill = api.peers.Prefill(call);
  const std::unique_ptr<DecodePeer> decode = api.peers.Decode(call);
  return run(CallPeers{.prefill = *prefill,
                       .decode = *decode,
                       .check = [&call] { return call.Check(); },
                       .cancel = [&call] { call.Cancel(); },
                       .tenant = call.tenant(),
                       .asking = [&call](RequestClock::Duration waited) { call.times().NoteAsked(waited); },
                       .bytes = call.bytes(),
                       .deadline = call.deadline(),
                       .watch = [&call](std::function<void()> on_cancel) -> std::shared_ptr<void> {
                         return std::make_shared<ClientCall::Watch>(call, std::move(on_cancel));
                       }});
}

size_t MostJsonValues(const ServedModel& model) { return 8 * size_t{model.max_context_tokens} + (size_t{64} << 10); }

absl::Status CheckModelName(std::string_view name, const ServedModel& model) {
  if (!model.names.strict || name.empty() || std::ranges::count(NamesOf(model), name) > 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("model: ", text::Quoted(name), " is not served here; this server has ",
                                          absl::StrJoin(NamesOf(model), ", ", [](std::string* out, const auto& served) {
                                            out->append(text::Quoted(served));
                                          })));
}

int64_t UnixSeconds() { return static_cast<int64_t>(std::time(nullptr)); }

}  // namespace moestro::router
