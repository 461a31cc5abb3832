// How prefill and decode come to the weights: follow the weight store's Attach stream until the segment is READY, map
// it, and keep the stream open as the attach lease. The mapping outlives the store: when the store dies, work goes on,
// and the lease is taken again from its successor.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/telemetry/metrics.h"
#include "common/weights/segment.h"

namespace grpc {
class ClientContext;
}

namespace moestro {

class WeightClient {
 public:
  // address of the store; role as it shall appear in the store's logs and metrics. The registry, which outlives this
  // object, is told the model's name and what is mapped. kLiftable if the role has a GPU.
  WeightClient(std::string address, std::string role, MetricsRegistry& registry,
               SharedMemory::ReadOnly mapping = SharedMemory::ReadOnly::kForGood);
  ~WeightClient();  // ends the lease

  // Waits until the segment is there and maps it; call once. `stop` is asked ten times a second and ends the wait
  // (CANCELLED). A store that is not up yet is waited for; one that has failed gives its error.
  absl::StatusOr<std::unique_ptr<const WeightSegment>> Attach(const std::function<bool()>& stop);

 private:
  using Result = absl::StatusOr<std::unique_ptr<const WeightSegment>>;

  void HoldLease();    // the lease thread: one Attach call after another until the destructor
  void FollowStore();  // one Attach call, until it ends
  void Deliver(Result result);

  const std::string address_;
  const std::string role_;
  MetricsRegistry& registry_;
  prometheus::Gauge& attached_bytes_;
  const SharedMemory::ReadOnly mapping_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  Condition delivered_;
  std::optional<Result> result_ ABSL_GUARDED_BY(mutex_);  // what Attach returns
  bool attached_ = false;                                 // used by the lease thread only
  std::string fingerprint_;                               // of the attached segment; used by the lease thread only
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // the call in flight
  std::thread lease_;
};

}  // namespace moestro
