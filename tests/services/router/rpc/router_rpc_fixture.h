// The router's adapters over real gRPC on unix sockets, against small fakes of the other roles.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "moestro/v1/decode.grpc.pb.h"
#include "moestro/v1/inference.grpc.pb.h"
#include "moestro/v1/prefill.grpc.pb.h"
#include "moestro/v1/weight_store.grpc.pb.h"
#include "services/router/request/request_runner.h"
#include "services/router/rpc/inference_service.h"
#include "services/router/rpc/peer_channels.h"
#include "services/router/rpc/weight_follower.h"
#include "tests/services/router/fake_node.h"
#include "tests/services/router/tiny_tokenizer.h"
#include "tests/support/hang.h"

namespace moestro::router {
// The fakes' model: a lower-case letter that depends on all tokens before it.
inline int32_t NextToken(const std::vector<int32_t>& tokens) {
  uint64_t sum = 0;
  for (const int32_t token : tokens) sum = sum * 31 + static_cast<uint64_t>(token);
  return static_cast<int32_t>('a' + sum % 26);
}

inline std::string ExpectedText(std::vector<int32_t> tokens, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(NextToken(tokens));
    text += static_cast<char>(tokens.back());
  }
  return text;
}

// What prefill and decode share in place of the KV pool.
struct FakePool {
  std::mutex mutex;
  std::map<uint64_t, std::vector<int32_t>> leases;
  uint64_t last_id = 0;
  std::atomic<int> sessions{0};
  std::atomic<uint32_t> preempt_after{0};  // tokens of a session, as long as preemptions are left; 0 = never
  std::atomic<int> preemptions_left{0};
  std::atomic<bool> preempt_in_prefill{false};                  // the next lease
  std::atomic<bool> prefill_hangs{false}, decode_hangs{false};  // the next call that comes by, until it is cancelled
  std::atomic<int64_t> decode_hangs_at{-1};                     // the same, of a session with so many tokens; -1: none
  std::atomic<int> hangs{0};                                    // calls that did or do

  void HangIfAsked(const grpc::ServerContext& context, std::atomic<bool>& asked) {
    if (asked.exchange(false)) Hang(context);
  }
  void HangIfAsked(const grpc::ServerContext& context, int64_t tokens) {
    if (decode_hangs_at.compare_exchange_strong(tokens, -1)) Hang(context);
  }

 private:
  void Hang(const grpc::ServerContext& context) {
    ++hangs;
    while (!context.IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

inline grpc::Status Preempted() { return {grpc::StatusCode::ABORTED, "an older request needed the pages"}; }

// Prompts of fewer new tokens go to decode.
inline constexpr uint32_t kChunkedBelow = 2;

class FakePrefill final : public v1::PrefillService::Service {
 public:
  explicit FakePrefill(FakePool& pool) : pool_(pool) {}
  grpc::Status Run(grpc::ServerContext* context, const v1::RunRequest* request,
                   grpc::ServerWriter<v1::RunResponse>* writer) override {
    const std::vector<int32_t> tokens(request->token_ids().begin(), request->token_ids().end());
    {
      std::lock_guard lock(pool_.mutex);
      const auto lease = pool_.leases.find(request->lease().id());
      if (lease == pool_.leases.end()) return grpc::Status(grpc::StatusCode::ABORTED, "the lease was revoked");
      if (pool_.preempt_in_prefill) return grpc::Status(grpc::StatusCode::ABORTED, "the lease was revoked");
      lease->second = tokens;
      constraint_ = request->sampling().constraint();
    }
    whole_machine = request->whole_machine();
    ++runs;
    pool_.HangIfAsked(*context, pool_.prefill_hangs);
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    v1::RunResponse reply;
    reply.mutable_progress()->set_done_tokens(static_cast<uint32_t>(tokens.size()));
    reply.mutable_progress()->set_total_tokens(static_cast<uint32_t>(tokens.size()));
    writer->Write(reply);
    if (request->has_score()) {
      for (const int32_t token : tokens) reply.mutable_scores()->add_scores()->set_id(token);
    } else {
      reply.mutable_first_token()->set_id(NextToken(tokens));
      reply.set_fp8_activations(fp8_activations);
    }
    writer->Write(reply);
    return grpc::Status::OK;
  }
  std::atomic<bool> whole_machine{false};
  std::atomic<bool> fp8_activations{false};
  std::atomic<int> runs{0};
  v1::Constraint Constraint() {
    std::lock_guard lock(pool_.mutex);
    return constraint_;
  }

 private:
  FakePool& pool_;
  v1::Constraint constraint_;  // of the last run
};

class FakeDecode final : public v1::DecodeService::Service {
 public:
  explicit FakeDecode(FakePool& pool) : pool_(pool) {}
  std::atomic<int> prompts{0};
  std::atomic<int> refusals{0};
  std::atomic<bool> serves_other_weights{false};
  std::string expected_scope;  // of all requests; set while none runs
  v1::Constraint Constraint() {
    std::lock_guard lock(pool_.mutex);
    return constraint_;
  }
  grpc::Status Session(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>* stream) override {
    ++pool_.sessions;
    const grpc::Status status = Run(*context, *stream);
    --pool_.sessions;
    return status;
  }

 private:
  grpc::Status Run(grpc::ServerContext& context,
                   grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>& stream) {
    v1::SessionRequest request;
    if (!stream.Read(&request)) return grpc::Status::CANCELLED;
    const v1::SessionRequest::Reserve reserve = request.reserve();
    EXPECT_GT(reserve.arrival(), 0u);
    EXPECT_EQ(reserve.fingerprint(), "weights");
    pool_.HangIfAsked(context, pool_.decode_hangs);
    EXPECT_EQ(reserve.cache_scope(), expected_scope);
    if (serves_other_weights) {
      ++refusals;
      return {grpc::StatusCode::FAILED_PRECONDITION, "restart decode"};
    }
    uint64_t id = 0;
    {
      std::lock_guard lock(pool_.mutex);
      id = ++pool_.last_id;
      pool_.leases[id];
    }
    v1::SessionResponse reply;
    reply.mutable_reserved()->mutable_lease()->set_id(id);
    // The prefix cache holds two tokens of everything.
    reply.mutable_reserved()->set_cached_tokens(reserve.token_ids_size() > 2 ? 2 : 0);
    stream.Write(reply);
    grpc::Status status = grpc::Status::CANCELLED;
    if (stream.Read(&request)) {
      status = Begin(context, stream, reserve, request, id);
    } else if (pool_.preempt_in_prefill.exchange(false)) {
      status = Preempted();
    }
    std::lock_guard lock(pool_.mutex);
    pool_.leases.erase(id);
    return status;
  }

  grpc::Status Begin(grpc::ServerContext& context,
                     grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>& stream,
                     const v1::SessionRequest::Reserve& reserve, const v1::SessionRequest& request, uint64_t id) {
    std::vector<int32_t> tokens(reserve.token_ids().begin(), reserve.token_ids().end());
    {
      std::lock_guard lock(pool_.mutex);
      constraint_ = (request.has_start() ? request.start().sampling() : request.prompt().sampling()).constraint();
    }
    if (request.has_start()) {
      EXPECT_EQ(Filled(id), tokens);
      tokens.push_back(request.start().token());
      return Generate(context, stream, std::move(tokens), request.start().max_tokens());
    }
    ++prompts;
    EXPECT_EQ(request.prompt().index(), 0u);
    EXPECT_EQ(request.prompt().max_tokens(), reserve.max_tokens());
    v1::SessionResponse reply;
    reply.mutable_progress()->set_done_tokens(static_cast<uint32_t>(tokens.size()));
    reply.mutable_progress()->set_total_tokens(static_cast<uint32_t>(tokens.size()));
    stream.Write(reply);
    return Generate(context, stream, std::move(tokens), request.prompt().max_tokens());
  }

  std::vector<int32_t> Filled(uint64_t id) {
    std::lock_guard lock(pool_.mutex);
    return pool_.leases[id];
  }

  grpc::Status Generate(grpc::ServerContext& context,
                        grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>& stream,
                        std::vector<int32_t> tokens, uint32_t max_tokens) {
    v1::SessionResponse reply;
    for (uint32_t i = 0; i < max_tokens; ++i) {
      if (pool_.preempt_after > 0 && i == pool_.preempt_after && pool_.preemptions_left-- > 0) return Preempted();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      pool_.HangIfAsked(context, i);
      if (context.IsCancelled()) return grpc::Status::CANCELLED;
      tokens.push_back(NextToken(tokens));
      reply.mutable_token()->set_id(tokens.back());
      stream.Write(reply);
    }
    reply.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
    stream.Write(reply);
    return grpc::Status::OK;
  }

  FakePool& pool_;
  v1::Constraint constraint_;  // of the last session
};

class FakeStore final : public v1::WeightStoreService::Service {
 public:
  explicit FakeStore(std::string fingerprint) : fingerprint_(std::move(fingerprint)) {}
  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeResponse* reply) override {
    reply->set_model_name("tiny");
    reply->set_fingerprint(fingerprint_);
    reply->set_max_context_tokens(1000);
    reply->set_tokenizer_json(testing::TinyTokenizerJson());
    reply->set_bos_token("<|bos|>");
    reply->set_add_bos_token(fingerprint_ == "b");
    return grpc::Status::OK;
  }
  grpc::Status Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                      grpc::ServerWriter<v1::AttachResponse>* writer) override {
    EXPECT_EQ(request->role(), "router");
    v1::AttachResponse reply;
    reply.set_fingerprint(fingerprint_);
    reply.set_state(v1::AttachResponse::STATE_LOADING);
    reply.set_loaded_bytes(1);
    reply.set_total_bytes(4);
    writer->Write(reply);
    while (!ready && !context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    reply.set_state(v1::AttachResponse::STATE_READY);
    writer->Write(reply);
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return grpc::Status::OK;
  }
  std::atomic<bool> ready{false};

 private:
  const std::string fingerprint_;
};

inline bool Eventually(const std::function<bool()>& condition) {
  for (const auto end = std::chrono::steady_clock::now() + kHang; std::chrono::steady_clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class RouterRpcTest : public ::testing::Test {
 protected:
  explicit RouterRpcTest(const std::string& keys_file = "")
      : directory_(::testing::TempDir() + "router_rpc_" + std::to_string(getpid())),
        prefill_(pool_),
        decode_(pool_),
        registry_("router"),
        metrics_(registry_),
        peers_(Address("prefill"), Address("decode")),
        roles_([this](Role role) { return peers_.Ping(role); }, [this](Role role) { peers_.CutOff(role); }, clock_,
               kHang),
        queue_(16),
        policy_({.chunked_below_tokens = kChunkedBelow}, still_clock_),
        runner_(board_, {roles_, queue_, policy_, metrics_, clock_}, {}, [this] { return ++random_; }),
        slow_clients_({}, still_clock_, metrics_.clients_stalled, metrics_.clients_behind),
        access_(keys_file, registry_, still_clock_),
        service_(MakeInferenceService(registry_, runner_, board_, peers_, slow_clients_, access_)) {
    EXPECT_EQ(access_.Load(), absl::OkStatus());
    spdlog::set_level(spdlog::level::off);
    std::filesystem::create_directories(directory_);
    prefill_server_ = StartRole("prefill", prefill_);
    decode_server_ = StartRole("decode", decode_);
    router_server_ = StartRole("router", *service_, {"127.0.0.1:0"});
    client_ = v1::InferenceService::NewStub(ConnectPeer(Address("router")));
    auto model = std::make_shared<ServedModel>();
    model->name = "tiny";
    model->fingerprint = "weights";
    model->max_context_tokens = 1000;
    model->default_temperature = 0.5f;
    model->default_top_p = 0.75f;
    model->default_top_k = 7;
    model->bos_token = "<|bos|>";
    model->eos_token = "<|end|>";
    model->chat_template = "a template";
    model->tool_use_template = "another";
    model->created_seconds = 1234;
    model->text = *ModelText::Create({.tokenizer_json = testing::TinyTokenizerJson(),
                                      .chat_template = "",
                                      .bos_token = "<|bos|>",
                                      .eos_token = "",
                                      .add_bos_token = true});
    board_.SetModel(std::move(model));
    board_.SetReady();
  }
  ~RouterRpcTest() override {
    router_server_.reset();
    std::filesystem::remove_all(directory_);
  }

  std::string Address(const std::string& role) const { return "unix:" + directory_ + "/" + role + ".sock"; }

  // `addresses`: besides the role's own.
  std::unique_ptr<RpcServer> StartRole(const std::string& role, grpc::Service& service,
                                       std::vector<std::string> addresses = {}) {
    addresses.insert(addresses.begin(), Address(role));
    auto server = RpcServer::Start(addresses, {{role.c_str(), &service}});
    EXPECT_TRUE(server.ok()) << server.status();
    (*server)->SetServing(true);
    return *std::move(server);
  }

  static v1::GenerateRequest Request(uint32_t max_tokens) {
    v1::GenerateRequest request;
    request.mutable_token_ids()->add_ids('x');
    request.mutable_token_ids()->add_ids('y');
    request.set_max_tokens(max_tokens);
    return request;
  }

  // `on_text` may break things while the answer comes.
  grpc::Status Generate(const v1::GenerateRequest& request, std::string& text, v1::GenerateResponse::Finished& finished,
                        const std::function<void(grpc::ClientContext&)>& on_text = nullptr,
                        std::chrono::milliseconds timeout = kHang) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    const auto reader = client_->Generate(&context, request);
    v1::GenerateResponse reply;
    while (reader->Read(&reply)) {
      if (reply.has_tokens()) {
        text += reply.tokens().text();
        if (on_text) on_text(context);
      }
      if (reply.has_started()) started_ = reply.started();
      if (reply.has_prefill()) progress_ = reply.prefill();
      if (reply.has_finished()) finished = reply.finished();
    }
    return reader->Finish();
  }

  const std::string directory_;
  FakePool pool_;
  FakePrefill prefill_;
  FakeDecode decode_;
  SteadyClock clock_;
  // Of whatever says or limits how much time has passed: none does, but what a test lets pass.
  testing::FakeRequestClock still_clock_;
  MetricsRegistry registry_;
  RouterMetrics metrics_;
  ModelBoard board_;
  PeerChannels peers_;
  RoleMonitor roles_;
  AdmissionQueue queue_;
  PathPolicy policy_;
  std::atomic<uint64_t> random_{0};
  RequestRunner runner_;
  SlowClients slow_clients_;
  AccessControl access_;
  std::shared_ptr<grpc::Service> service_;
  std::unique_ptr<RpcServer> prefill_server_;
  std::unique_ptr<RpcServer> decode_server_;
  std::unique_ptr<RpcServer> router_server_;
  std::unique_ptr<v1::InferenceService::Stub> client_;
  v1::GenerateResponse::Started started_;  // of the last request
  v1::PrefillProgress progress_;
};

}  // namespace moestro::router
