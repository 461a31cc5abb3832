// gRPC adapter of the weight store.
#pragma once

#include "common/rpc/handler.h"
#include "moestro/v1/weight_store.grpc.pb.h"
#include "services/weight_store/load_state.h"
#include "services/weight_store/metrics.h"

namespace moestro::store {

class WeightStoreRpc final : public v1::WeightStoreService::Service {
 public:
  // `description` is the reply to Describe. All must outlive the RPC server.
  WeightStoreRpc(MetricsRegistry& registry, v1::DescribeResponse description, LoadState& state, StoreMetrics& metrics)
      : describe_(registry, "WeightStore.Describe"),
        attach_(registry, "WeightStore.Attach"),
        description_(std::move(description)),
        state_(state),
        metrics_(metrics) {}

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* reply) override;
  grpc::Status Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                      grpc::ServerWriter<v1::AttachResponse>* writer) override;

 private:
  // UNAVAILABLE if the store ends first; OK if the role does.
  absl::Status HoldLease(grpc::ServerContext& context, const v1::AttachRequest& request,
                         grpc::ServerWriter<v1::AttachResponse>& writer);

  const RpcMethod describe_;
  const RpcMethod attach_;
  const v1::DescribeResponse description_;
  LoadState& state_;
  StoreMetrics& metrics_;
};

}  // namespace moestro::store
