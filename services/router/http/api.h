// What endpoints work with.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "services/router/access/access_control.h"
#include "services/router/http/message.h"
#include "services/router/http/response.h"
#include "services/router/http/worker_pool.h"
#include "services/router/request/request_runner.h"
#include "services/router/rpc/peer_channels.h"
#include "services/router/text/served_model.h"

namespace moestro::router {

class Batches;
class Downloads;

struct HttpApi {  // all must outlive the endpoints
  RequestRunner& runner;
  const ModelBoard& board;
  PeerChannels& peers;
  WorkerPool& workers;
  MetricsRegistry& registry;
  const RouterMetrics& metrics;
  AccessControl& access;
  RequestClock& clock;                  // of what a client is told while it waits
  std::function<absl::Status()> ready;  // OK if requests are served now; else UNAVAILABLE with the reason
  bool is_public = false;               // others reach the listener: it serves nothing that tells of other clients
  std::chrono::seconds keep_alive{10};  // a comment in streams that are silent for this long; 0: none
  Batches* batches = nullptr;           // null: none are kept
  Downloads* downloads = nullptr;       // not null where `batches` is not
};

// Runs `run` with peers whose calls end when the client leaves. REQUIRES: `call` has a tenant.
absl::Status WithPeers(const HttpApi& api, ClientCall& call, absl::FunctionRef<absl::Status(CallPeers)> run);

// How many JSON values a request may have: a list of all ids of a context, or tools of many, and some for all else.
size_t MostJsonValues(const ServedModel& model);

// OK if a client that asks for model `name` gets the served one (ModelNames); it need not name any.
absl::Status CheckModelName(std::string_view name, const ServedModel& model);

int64_t UnixSeconds();

}  // namespace moestro::router
