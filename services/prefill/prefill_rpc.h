// gRPC adapter of the prefill role.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "common/kv/lease_writer.h"
#include "moestro/v1/prefill.grpc.pb.h"
#include "services/prefill/metrics.h"
#include "services/prefill/prefill_runner.h"
#include "services/prefill/turn_queue.h"

namespace moestro {

class PrefillRpc final : public v1::Prefill::Service {
 public:
  PrefillRpc(PrefillMetrics& metrics, size_t queue_limit) : metrics_(metrics), queue_limit_(queue_limit) {}

  // Until this is called every Run is refused as UNAVAILABLE. `runner` must outlive the RPC server; `fingerprint` is
  // that of the weights it computes with.
  void Serve(PrefillRunner* runner, const std::string& fingerprint);

  grpc::Status Run(grpc::ServerContext* context, const v1::PrefillRequest* request,
                   grpc::ServerWriter<v1::PrefillReply>* writer) override;

  size_t waiting() const { return queue_.waiting(); }

 private:
  absl::Status RunQueued(grpc::ServerContext& context, const v1::PrefillRequest& request,
                         grpc::ServerWriter<v1::PrefillReply>& writer);
  absl::Status RunNow(grpc::ServerContext& context, const v1::PrefillRequest& request,
                      grpc::ServerWriter<v1::PrefillReply>& writer);
  // The pool's mapping, opened anew when decode has restarted.
  absl::StatusOr<std::shared_ptr<const KvPoolMapping>> Pool(const std::string& name);

  PrefillMetrics& metrics_;
  const size_t queue_limit_;
  TurnQueue queue_;
  std::atomic<PrefillRunner*> runner_{nullptr};
  std::string fingerprint_;  // written before runner_ is
  std::mutex mutex_;
  std::shared_ptr<const KvPoolMapping> pool_;  // guarded by mutex_
};

}  // namespace moestro
