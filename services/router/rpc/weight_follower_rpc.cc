#include <grpcpp/client_context.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/exceptions.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/telemetry/log.h"
#include "moestro/v1/weight_store.grpc.pb.h"
#include "services/router/rpc/weight_follower.h"

namespace moestro::router {
namespace {

absl::StatusOr<ModelBoard::ModelPtr> MakeModel(const v1::DescribeResponse& reply) {
  auto model = std::make_shared<ServedModel>();
  model->name = reply.model_name();
  model->family = reply.family();
  model->fingerprint = reply.fingerprint();
  model->max_context_tokens = reply.max_context_tokens();
  model->vocab_size = reply.vocab_size();
  model->segment_bytes = reply.segment_bytes();
  model->stop_ids.assign(reply.stop_ids().begin(), reply.stop_ids().end());
  model->default_temperature = reply.default_temperature();
  model->default_top_p = reply.default_top_p() > 0 ? reply.default_top_p() : 1;
  model->default_top_k = reply.default_top_k();
  model->default_min_p = reply.default_min_p();
  model->default_repetition_penalty = reply.default_repetition_penalty() > 0 ? reply.default_repetition_penalty() : 1;
  model->sampling_source = reply.sampling_source();
  model->default_max_tokens = reply.default_max_tokens();
  model->bos_token = reply.bos_token();
  model->eos_token = reply.eos_token();
  model->chat_template = reply.chat_template();
  model->tool_use_template = reply.tool_use_template();
  model->created_seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  MOE_ASSIGN_OR_RETURN(model->text, ModelText::Create({.tokenizer_json = reply.tokenizer_json(),
                                                       .tiktoken_ranks = reply.tiktoken_ranks(),
                                                       .tokenizer_config_json = reply.tokenizer_config_json(),
                                                       .family = reply.family(),
                                                       .token_count = static_cast<int32_t>(reply.vocab_size()),
                                                       .chat_template = reply.chat_template(),
                                                       .tool_use_template = reply.tool_use_template(),
                                                       .bos_token = reply.bos_token(),
                                                       .eos_token = reply.eos_token(),
                                                       .add_bos_token = reply.add_bos_token()}));
  return model;
}

std::string DescribeProblem(const grpc::Status& status) {
  if (status.error_message().starts_with("failed to connect"))
    return "the weight store does not answer: is it running?";
  return "weight store: " + status.error_message();
}

}  // namespace

struct WeightFollower::Rpc {
  explicit Rpc(const std::string& address) : stub(v1::WeightStoreService::NewStub(ConnectPeer(address))) {}
  std::unique_ptr<v1::WeightStoreService::Stub> stub;
};

WeightFollower::WeightFollower(const std::string& address, ModelBoard& board, prometheus::Gauge& up,
                               std::function<void()> on_progress)
    : board_(board),
      up_(up),
      rpc_(std::make_unique<Rpc>(address)),
      on_progress_(std::move(on_progress)),
      thread_([this] { Loop(); }) {}

WeightFollower::~WeightFollower() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  thread_.join();
}

void WeightFollower::Loop() {
  while (!stopping_) {
    const absl::Status status = CatchExceptions([&] {
      if (Describe()) Attach();
      return absl::OkStatus();
    });
    if (!status.ok()) {
      Register(nullptr);
      up_.Set(0);
      board_.SetProblem(std::string(status.message()));
      LogError("following the weight store: {}", std::string(status.message()));
    }
    Pause();
  }
}

void WeightFollower::Pause() {
  if (!stopping_) std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

bool WeightFollower::Register(grpc::ClientContext* context) {
  MutexLock lock(mutex_);
  call_ = context;
  return !stopping_;
}

bool WeightFollower::Describe() {
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(std::chrono::seconds(10)));
  v1::DescribeResponse reply;
  if (!Register(&context)) return false;
  const grpc::Status status = rpc_->stub->Describe(&context, {}, &reply);
  Register(nullptr);
  if (!status.ok()) {
    board_.SetProblem(DescribeProblem(status));
    return false;
  }
  if (reply.fingerprint() == board_.fingerprint()) return true;
  if (reply.fingerprint() == unusable_) return false;
  absl::StatusOr<ModelBoard::ModelPtr> model = MakeModel(reply);
  if (!model.ok()) {
    board_.SetProblem(std::string(model.status().message()));
    // deploy/up looks for these words.
    LogError("cannot serve model {}: {}", reply.model_name(), std::string(model.status().message()));
    unusable_ = reply.fingerprint();
    return false;
  }
  LogInfo("model {} ({}), context {} tokens", reply.model_name(), reply.family(), reply.max_context_tokens());
  LogInfo("sampling by default ({}): temperature {}, top-p {}, top-k {}, min-p {}, repetition penalty {}",
          (*model)->sampling_source, (*model)->default_temperature, (*model)->default_top_p, (*model)->default_top_k,
          (*model)->default_min_p, (*model)->default_repetition_penalty);
  board_.SetModel(*std::move(model));
  return true;
}

void WeightFollower::Attach() {
  grpc::ClientContext context;
  if (!Register(&context)) return;
  v1::AttachRequest request;
  request.set_role("router");
  const auto stream = rpc_->stub->Attach(&context, request);
  v1::AttachResponse reply;
  while (stream->Read(&reply)) {
    up_.Set(1);
    if (reply.fingerprint() != board_.fingerprint()) {
      context.TryCancel();  // The store was replaced between the two calls: call Describe again.
      break;
    }
    if (reply.state() == v1::AttachResponse::STATE_READY) {
      board_.SetReady();
      most_loaded_bytes_ = 0;
    }
    if (reply.state() == v1::AttachResponse::STATE_LOADING) {
      board_.SetProgress(reply.loaded_bytes(), reply.total_bytes());
      if (reply.loaded_bytes() > std::exchange(most_loaded_bytes_, std::max(most_loaded_bytes_, reply.loaded_bytes())))
        on_progress_();
    }
    if (reply.state() == v1::AttachResponse::STATE_FAILED)
      board_.SetProblem("the weights failed to load: " + reply.error());
  }
  const grpc::Status status = stream->Finish();
  Register(nullptr);
  up_.Set(0);
  if (!stopping_) LogWarning("the weight store is gone ({}); waiting for it", status.error_message());
}

}  // namespace moestro::router
