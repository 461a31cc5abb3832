#include "common/rpc/tokenizer_client.h"

#include <grpcpp/client_context.h>

#include <chrono>

#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "moestro/v1/weight_store.grpc.pb.h"

namespace moestro {

absl::StatusOr<std::unique_ptr<const text::Tokenizer>> LoadTokenizer(const std::string& store_address,
                                                                     const std::string& fingerprint) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(DeadlineIn(std::chrono::seconds(10)));
  v1::DescribeResponse model;
  const grpc::Status status =
      v1::WeightStoreService::NewStub(ConnectPeer(store_address))->Describe(&context, {}, &model);
  if (!status.ok()) {
    return absl::UnavailableError("the weight store does not give the tokenizer: " + status.error_message());
  }
  if (model.fingerprint() != fingerprint) {
    return absl::FailedPreconditionError("the weight store serves weights " + model.fingerprint() +
                                         ", not those of this role: restart the role");
  }
  return text::Tokenizer::Create({.tokenizer_json = model.tokenizer_json(),
                                  .tiktoken_ranks = model.tiktoken_ranks(),
                                  .tokenizer_config_json = model.tokenizer_config_json(),
                                  .model_type = model.family(),
                                  .id_limit = static_cast<int32_t>(model.vocab_size())});
}

}  // namespace moestro
