#include "common/rpc/health_rpc.h"

#include "common/base/check.h"

namespace moestro {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch call. Writes the latest status whenever it differs from the last one written: changes during a write are
// merged. Owns itself from Watch until OnDone, the last of its callbacks.
class HealthRpc::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthRpc& service, bool known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service.mutex_)
      : service_(service), known_(known) {
    service_.watchers_.insert(this);
    UpdateLocked();
  }

  // REQUIRES the service's lock.
  void UpdateLocked() {
    service_.mutex_.AssertHeld();
    if (writing_ || finished_) return;
    const Status status = known_ ? service_.StatusLocked() : HealthCheckResponse::SERVICE_UNKNOWN;
    if (!told_ || status != message_.status()) {
      message_.set_status(status);
      told_ = writing_ = true;
      StartWrite(&message_);
    } else if (service_.shut_down_) {
      FinishLocked("the server is shutting down");
    }
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(service_.mutex_);
    writing_ = false;
    if (!ok || cancelled_) {
      FinishLocked("the watcher went away");
    } else {
      UpdateLocked();
    }
  }

  void OnCancel() override {
    MutexLock lock(service_.mutex_);
    cancelled_ = true;
    if (!writing_) FinishLocked("the watcher went away");
  }

  void OnDone() override {
    {
      MutexLock lock(service_.mutex_);
      service_.watchers_.erase(this);
    }
    delete this;
  }

 private:
  void FinishLocked(const char* why) {
    if (finished_) return;
    finished_ = true;
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, why));
  }

  HealthRpc& service_;
  const bool known_;
  HealthCheckResponse message_;  // the last one written, or in flight
  bool told_ = false;
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

HealthRpc::HealthRpc(const std::vector<std::string>& services) : names_(services.begin(), services.end()) {
  names_.insert("");
}

HealthRpc::~HealthRpc() { MOE_CHECK(watchers_.empty()); }

HealthRpc::Status HealthRpc::StatusLocked() const {
  return serving_ && alive_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthRpc::TellWatchersLocked() {
  for (Watcher* watcher : watchers_) watcher->UpdateLocked();
}

void HealthRpc::SetStarting() {
  MutexLock lock(mutex_);
  starting_ = true;
}

void HealthRpc::SetServing(bool serving) {
  MutexLock lock(mutex_);
  starting_ = false;
  serving_ = serving && !shut_down_;
  TellWatchersLocked();
}

void HealthRpc::SetAlive(bool alive) {
  MutexLock lock(mutex_);
  alive_ = alive;
  TellWatchersLocked();
}

void HealthRpc::Shutdown() {
  MutexLock lock(mutex_);
  starting_ = serving_ = false;
  shut_down_ = true;
  TellWatchersLocked();
}

grpc::ServerUnaryReactor* HealthRpc::Check(grpc::CallbackServerContext* context, const HealthCheckRequest* request,
                                           HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const bool asks_for_start = request->service() == kStartingService;
  if (!asks_for_start && !Knows(request->service())) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND, "no service '" + request->service() + "' here"));
    return reactor;
  }
  {
    MutexLock lock(mutex_);
    const bool starts = starting_ && alive_;
    response->set_status(!asks_for_start ? StatusLocked()
                         : starts        ? HealthCheckResponse::SERVING
                                         : HealthCheckResponse::NOT_SERVING);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthRpc::Watch(grpc::CallbackServerContext*,
                                                                const HealthCheckRequest* request) {
  MutexLock lock(mutex_);
  return new Watcher(*this, Knows(request->service()));
}

}  // namespace moestro
