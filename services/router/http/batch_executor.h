// Requests of a batch, run by the endpoints of this process.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "common/base/mutex.h"
#include "common/batch/batch_run.h"
#include "services/router/http/api.h"
#include "services/router/http/response.h"
#include "services/router/rpc/slow_clients.h"

namespace moestro::router {

// On behalf of one tenant: each request counts against its limits, as if it came over the wire. A tenant whose key has
// gone gets 401.
class BatchExecutor final : public batch::Executor {
 public:
  // The arguments must outlive this.
  BatchExecutor(const HttpApi& api, SlowClients& clients, std::string tenant);

  batch::Reply Execute(const batch::Request& request) override;
  void Cancel() override;

 private:
  absl::Status Handle(const batch::Request& request, Response& response);

  const HttpApi& api_;
  SlowClients& clients_;
  const std::string tenant_;
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Response*> running_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moestro::router
