// Learns the model from the weight store and follows its load: Describe, then the Attach stream, which is also the
// router's lease. If the store comes back with the same checkpoint, nothing changes; the router adopts a different one.
#pragma once

#include <prometheus/gauge.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "common/base/mutex.h"
#include "services/router/text/served_model.h"

namespace grpc {
class ClientContext;
}

namespace moestro::router {

class WeightFollower {
 public:
  // Starts a thread at once. `up` is 1 while the stream is open. Both arguments must outlive this object.
  WeightFollower(const std::string& address, ModelBoard& board, prometheus::Gauge& up);
  ~WeightFollower();  // ends the lease

 private:
  struct Rpc;

  void Loop();
  bool Describe();                              // false: try again later
  void Attach();                                // until the stream ends
  bool Register(grpc::ClientContext* context);  // false when stopping; nullptr after a call
  void Pause();

  ModelBoard& board_;
  prometheus::Gauge& up_;
  const std::unique_ptr<Rpc> rpc_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // the call in flight
  std::string unusable_;  // fingerprint of a model whose text settings are unusable; used by the thread only
  std::thread thread_;
};

}  // namespace moestro::router
