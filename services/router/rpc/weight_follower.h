// Learns the model from the weight store and follows its load: Describe, then the Attach stream, which is also the
// router's lease. If the store comes back with the same checkpoint, nothing changes; the router adopts a different one.
#pragma once

#include <prometheus/gauge.h>

#include <atomic>
#include <cstdint>
#include <functional>
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
  // Starts a thread at once, which calls `on_progress` when more of the weights is in memory than ever since they were
  // all there: a store that fails again and again makes none. `up` is 1 while the stream is open. The references must
  // outlive this object.
  WeightFollower(const std::string& address, ModelBoard& board, prometheus::Gauge& up,
                 std::function<void()> on_progress);
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
  const std::function<void()> on_progress_;
  int64_t most_loaded_bytes_ = 0;  // since all were; used by the thread only, like the next
  std::string unusable_;           // fingerprint of a model whose text settings are unusable
  std::thread thread_;
};

}  // namespace moestro::router
