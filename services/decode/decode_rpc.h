// gRPC adapter of the decode role.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/inference/prompt_costs.h"
#include "common/kv/pool.h"
#include "common/rpc/handler.h"
#include "common/text/grammar/vocabulary_grammars.h"
#include "moestro/v1/decode.grpc.pb.h"
#include "services/decode/decode_loop.h"
#include "services/decode/lease_table.h"
#include "services/decode/lease_watch.h"

namespace moestro::decode {

class DecodeRpc final : public v1::DecodeService::Service {
 public:
  DecodeRpc(MetricsRegistry& registry, std::chrono::seconds lease_timeout)
      : session_(registry, "Decode.Session"),
        costs_method_(registry, "Decode.Costs"),
        lease_timeout_(lease_timeout),
        watch_(lease_timeout) {}

  // Until this call, every Session fails as UNAVAILABLE. All pointers must outlive the RPC server. `fingerprint` is
  // that of the weights that the loop computes with.
  void Serve(kv::KvPool* pool, LeaseTable* leases, DecodeLoop* loop, text::grammar::VocabularyGrammars* grammars,
             const std::string& fingerprint, const std::vector<PromptCost>& costs = {}, int background_sequences = 0,
             double step_seconds = 0);
  // Called at the owner's clock tick. Returns the number of leases that expired.
  int ExpireLeases() { return watch_.Expire(LeaseWatch::Clock::now()); }

  grpc::Status Session(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream) override;
  grpc::Status Costs(grpc::ServerContext* context, const v1::CostsRequest* request,
                     v1::CostsResponse* response) override;

 private:
  using Stream = grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>;
  absl::Status CheckWeights(const v1::SessionRequest::Reserve& reserve) const;
  // Sets `request_id` as soon as it is known.
  absl::Status RunSession(grpc::ServerContext& context, Stream& stream, std::string& request_id);
  absl::Status RunLease(grpc::ServerContext& context, Stream& stream, const std::string& request_id,
                        const std::shared_ptr<Lease>& lease);
  // Adds the constraint of its sampling to the continuation of a request with these tokens.
  absl::Status Constrain(grpc::ServerContext& context, std::span<const int32_t> tokens, Continuation& next) const;
  absl::StatusOr<std::shared_ptr<TokenStream>> Begin(grpc::ServerContext& context, const v1::SessionRequest& request,
                                                     const std::shared_ptr<Lease>& lease);
  // Sends the tokens to the caller and counts them in `sent`.
  absl::Status Forward(grpc::ServerContext& context, Stream& stream, TokenStream& tokens, int64_t& sent);

  const RpcMethod session_;
  const RpcMethod costs_method_;
  const std::chrono::seconds lease_timeout_;
  std::string fingerprint_;                                // written before loop_
  v1::CostsResponse costs_;                                // the same
  text::grammar::VocabularyGrammars* grammars_ = nullptr;  // the same
  std::atomic<kv::KvPool*> pool_{nullptr};
  std::atomic<LeaseTable*> leases_{nullptr};
  std::atomic<DecodeLoop*> loop_{nullptr};
  LeaseWatch watch_;
};

}  // namespace moestro::decode
