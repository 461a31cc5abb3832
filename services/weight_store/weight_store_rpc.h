// gRPC adapter of the weight store.
#pragma once

#include "moestro/v1/weight_store.grpc.pb.h"
#include "services/weight_store/load_state.h"
#include "services/weight_store/store_metrics.h"

namespace moestro {

class WeightStoreRpc final : public v1::WeightStore::Service {
 public:
  // `description` is what Describe answers. All must outlive the RPC server.
  WeightStoreRpc(v1::DescribeReply description, LoadState& state, StoreMetrics& metrics)
      : description_(std::move(description)), state_(state), metrics_(metrics) {}

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeReply* reply) override;
  grpc::Status Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                      grpc::ServerWriter<v1::AttachReply>* writer) override;

 private:
  const v1::DescribeReply description_;
  LoadState& state_;
  StoreMetrics& metrics_;
};

}  // namespace moestro
