// Gives prefill and decode the weights: follows the weight store's Attach stream until the segment is READY, maps it,
// and keeps the stream open as the attach lease. The mapping outlives the store: if the store dies, work continues, and
// the lease is renewed with its successor.
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
  // `address`: the store's. `role`: the name in the store's logs and metrics. The registry must outlive this object and
  // receives the model's name and the mapped bytes. kLiftable if the role has a GPU.
  WeightClient(std::string address, std::string role, MetricsRegistry& registry,
               SharedMemory::ReadOnly mapping = SharedMemory::ReadOnly::kForGood);
  ~WeightClient();  // ends the lease

  // Waits until the segment is ready and maps it; call once. Calls `stop` ten times a second; true ends the wait
  // (CANCELLED). Waits for a store that is not up yet; returns the error of a store that failed.
  absl::StatusOr<std::unique_ptr<const weights::WeightSegment>> Attach(const std::function<bool()>& stop);

 private:
  using Result = absl::StatusOr<std::unique_ptr<const weights::WeightSegment>>;

  void HoldLease();    // the lease thread: repeats Attach calls until the destructor
  void FollowStore();  // one Attach call, to its end
  void Deliver(Result result);

  const std::string address_;
  const std::string role_;
  MetricsRegistry& registry_;
  prometheus::Gauge& attached_bytes_;
  const SharedMemory::ReadOnly mapping_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  Condition delivered_;
  std::optional<Result> result_ ABSL_GUARDED_BY(mutex_);  // the result of Attach
  bool attached_ = false;                                 // used only by the lease thread
  std::string fingerprint_;                               // of the attached segment; used only by the lease thread
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // the call in flight
  std::thread lease_;
};

}  // namespace moestro
