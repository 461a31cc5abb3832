// The router's adapters over real gRPC on unix sockets, against small fakes of the other roles.
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

namespace moestro {
namespace {

using ::testing::HasSubstr;

// The fakes' model: a lower-case letter that depends on all tokens before it.
int32_t NextToken(const std::vector<int32_t>& tokens) {
  uint64_t sum = 0;
  for (const int32_t token : tokens) sum = sum * 31 + static_cast<uint64_t>(token);
  return static_cast<int32_t>('a' + sum % 26);
}

std::string ExpectedText(std::vector<int32_t> tokens, int count) {
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
  std::atomic<int> hangs{0};                                    // calls that did or do

  void HangIfAsked(const grpc::ServerContext& context, std::atomic<bool>& asked) {
    if (!asked.exchange(false)) return;
    ++hangs;
    while (!context.IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

grpc::Status Preempted() { return {grpc::StatusCode::ABORTED, "the pages were needed for an older request"}; }

// Prompts of fewer new tokens go to decode.
constexpr uint32_t kChunkedBelow = 2;

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
    }
    writer->Write(reply);
    return grpc::Status::OK;
  }
  std::atomic<bool> whole_machine{false};
  std::atomic<int> runs{0};

 private:
  FakePool& pool_;
};

class FakeDecode final : public v1::DecodeService::Service {
 public:
  explicit FakeDecode(FakePool& pool) : pool_(pool) {}
  std::atomic<int> prompts{0};
  std::atomic<int> refusals{0};
  std::atomic<bool> serves_other_weights{false};
  std::string expected_scope;  // of all requests; set while none runs
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
      pool_.HangIfAsked(context, pool_.decode_hangs);
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

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

class RouterRpcTest : public ::testing::Test {
 protected:
  RouterRpcTest()
      : directory_(::testing::TempDir() + "router_rpc_" + std::to_string(getpid())),
        prefill_(pool_),
        decode_(pool_),
        registry_("router"),
        metrics_(registry_),
        peers_(Address("prefill"), Address("decode")),
        roles_([this](Role role) { return peers_.Ping(role); }, [this](Role role) { peers_.CutOff(role); }, clock_,
               std::chrono::seconds(10)),
        queue_(16),
        policy_({.chunked_below_tokens = kChunkedBelow}, clock_),
        runner_(board_, {roles_, queue_, policy_, metrics_, clock_}, {}, [this] { return ++random_; }),
        slow_clients_({}, slow_clock_, metrics_.clients_stalled, metrics_.clients_behind),
        service_(MakeInferenceService(registry_, runner_, board_, peers_, slow_clients_)) {
    spdlog::set_level(spdlog::level::off);
    std::filesystem::create_directories(directory_);
    prefill_server_ = StartRole("prefill", prefill_);
    decode_server_ = StartRole("decode", decode_);
    router_server_ = StartRole("router", *service_);
    client_ = v1::InferenceService::NewStub(ConnectPeer(Address("router")));
    auto model = std::make_shared<ServedModel>();
    model->name = "tiny";
    model->fingerprint = "weights";
    model->max_context_tokens = 1000;
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

  std::unique_ptr<RpcServer> StartRole(const std::string& role, grpc::Service& service) {
    auto server = RpcServer::Start({Address(role)}, {{role.c_str(), &service}});
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
                        std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
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
  MetricsRegistry registry_;
  RouterMetrics metrics_;
  ModelBoard board_;
  PeerChannels peers_;
  RoleMonitor roles_;
  AdmissionQueue queue_;
  PathPolicy policy_;
  std::atomic<uint64_t> random_{0};
  RequestRunner runner_;
  testing::FakeClock slow_clock_;
  SlowClients slow_clients_;
  std::shared_ptr<grpc::Service> service_;
  std::unique_ptr<RpcServer> prefill_server_;
  std::unique_ptr<RpcServer> decode_server_;
  std::unique_ptr<RpcServer> router_server_;
  std::unique_ptr<v1::InferenceService::Stub> client_;
  v1::GenerateResponse::Started started_;  // of the last request
  v1::PrefillProgress progress_;
};

TEST_F(RouterRpcTest, Generates) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(20), text, finished);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 20));
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(finished.usage().prompt_tokens(), 2u);
  EXPECT_EQ(finished.usage().completion_tokens(), 20u);
  EXPECT_GT(finished.time_to_first_token_seconds(), 0);
  EXPECT_GT(finished.prefill_seconds(), 0);
  EXPECT_LE(finished.prefill_seconds(), finished.time_to_first_token_seconds());
  EXPECT_EQ(finished.path(), v1::PREFILL_PATH_WHOLE_MACHINE);
  EXPECT_EQ(started_.path(), v1::PREFILL_PATH_WHOLE_MACHINE);
  EXPECT_EQ(started_.path_reason(), "2 new tokens >= 2, decode is idle");
  EXPECT_EQ(started_.cached_tokens(), 0u);
  EXPECT_TRUE(prefill_.whole_machine);
  EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
}

TEST_F(RouterRpcTest, TheCacheScopeGoesToDecodeEveryTime) {
  decode_.expected_scope = std::string("tenant\0", 7);
  pool_.preempt_after = 5;
  pool_.preemptions_left = 2;
  v1::GenerateRequest request = Request(20);
  request.set_cache_scope(decode_.expected_scope);
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(request, text, finished);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 20));
  EXPECT_EQ(finished.resumed(), 2u);
}

TEST_F(RouterRpcTest, TokenizesAndDetokenizes) {
  v1::TokenizeRequest tokenize;
  tokenize.set_text("hi \u00e4");
  v1::TokenizeResponse tokens;
  grpc::ClientContext first;
  ASSERT_TRUE(client_->Tokenize(&first, tokenize, &tokens).ok());
  EXPECT_THAT(tokens.ids(), ::testing::ElementsAre(testing::kBos, testing::kHi, ' ', 0xC3, 0xA4));
  EXPECT_THAT(tokens.pieces(), ::testing::ElementsAre("<|bos|>", "hi", " ", "\uFFFD", "\uFFFD"));
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_ids() = tokens.ids();
  v1::DetokenizeResponse text;
  grpc::ClientContext second;
  ASSERT_TRUE(client_->Detokenize(&second, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "hi \u00e4");
  grpc::ClientContext third;
  tokenize.mutable_chat();
  EXPECT_EQ(client_->Tokenize(&third, tokenize, &tokens).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(RouterRpcTest, LongPromptSoonAfterDecodeIsSplit) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  ASSERT_TRUE(Generate(Request(2), text, finished).ok());
  v1::GenerateRequest request = Request(5);
  request.mutable_token_ids()->add_ids('z');
  request.mutable_token_ids()->add_ids('z');
  text.clear();
  const grpc::Status status = Generate(request, text, finished);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y', 'z', 'z'}, 5));
  EXPECT_EQ(started_.path(), v1::PREFILL_PATH_SPLIT);
  EXPECT_EQ(started_.cached_tokens(), 2u);
  EXPECT_EQ(finished.path(), v1::PREFILL_PATH_SPLIT);
  EXPECT_EQ(finished.usage().cached_tokens(), 2u);
  EXPECT_FALSE(prefill_.whole_machine);
  EXPECT_EQ(prefill_.runs, 2);
}

TEST_F(RouterRpcTest, ShortPromptNeedsDecodeAlone) {
  prefill_server_.reset();
  std::string text;
  v1::GenerateResponse::Finished finished;
  v1::GenerateRequest request = Request(20);
  request.mutable_token_ids()->add_ids('z');  // three, of which two are cached
  const grpc::Status status = Generate(request, text, finished);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y', 'z'}, 20));
  EXPECT_EQ(started_.path(), v1::PREFILL_PATH_CHUNKED);
  EXPECT_EQ(started_.path_reason(), "1 new tokens < 2");
  EXPECT_EQ(progress_.done_tokens(), 3u);
  EXPECT_EQ(progress_.total_tokens(), 3u);
  EXPECT_EQ(finished.path(), v1::PREFILL_PATH_CHUNKED);
  EXPECT_EQ(finished.usage().cached_tokens(), 2u);
  EXPECT_EQ(decode_.prompts, 1);
  EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
}

TEST_F(RouterRpcTest, PreemptedRequestsGoOn) {
  pool_.preempt_after = 3;
  pool_.preemptions_left = 2 * RequestLife::kMaxRecoveries;
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(60), text, finished);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 60));
  EXPECT_EQ(finished.resumed(), static_cast<uint32_t>(2 * RequestLife::kMaxRecoveries));
  EXPECT_EQ(metrics_.preempted.Value(), 2 * RequestLife::kMaxRecoveries);
}

TEST_F(RouterRpcTest, DecodeSaysWhyPrefillFoundTheLeaseRevoked) {
  pool_.preempt_in_prefill = true;
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(5), text, finished);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 5));
  EXPECT_EQ(finished.resumed(), 1u);
  EXPECT_EQ(metrics_.preempted.Value(), 1);
}

TEST_F(RouterRpcTest, GoesOnWhenDecodeIsReplaced) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  bool replaced = false;
  const grpc::Status status = Generate(Request(60), text, finished, [&](grpc::ClientContext&) {
    if (text.size() < 10 || replaced) return;
    replaced = true;
    decode_server_.reset();
    decode_server_ = StartRole("decode", decode_);
  });
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 60));
  EXPECT_GE(finished.resumed(), 1u);
}

// A role that hangs keeps its calls open; the monitor cuts them off when it has not been healthy for too long.
TEST_F(RouterRpcTest, GoesOnWhenCallsToDecodeThatHangsAreCutOff) {
  int hangs = 0;
  for (const size_t hangs_at : {0u, 10u}) {  // in Reserve, and while it generates
    SCOPED_TRACE(hangs_at);
    std::string text;
    v1::GenerateResponse::Finished finished;
    pool_.decode_hangs = hangs_at == 0;
    ++hangs;
    std::thread monitor([&] {
      EXPECT_TRUE(Eventually([&] { return pool_.hangs == hangs; }));
      peers_.CutOff(Role::kDecode);
    });
    const grpc::Status status = Generate(Request(900), text, finished, [&](grpc::ClientContext&) {
      if (text.size() == hangs_at) pool_.decode_hangs = true;
    });
    monitor.join();
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(text, ExpectedText({'x', 'y'}, 900));
  }
}

TEST_F(RouterRpcTest, GoesOnWhenCallsToPrefillThatHangsAreCutOff) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  pool_.prefill_hangs = true;
  std::thread monitor([&] {
    EXPECT_TRUE(Eventually([&] { return pool_.hangs == 1; }));
    peers_.CutOff(Role::kPrefill);
  });
  const grpc::Status status = Generate(Request(5), text, finished);
  monitor.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 5));
  EXPECT_GE(finished.resumed(), 1u);
}

TEST_F(RouterRpcTest, AClientThatDoesNotReadHoldsNothingAndIsCutOff) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 256);
  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateCustomChannel(Address("router"), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, Request(900));
  v1::GenerateResponse reply;
  ASSERT_TRUE(reader->Read(&reply));
  EXPECT_TRUE(Eventually([&] { return metrics_.generation_tokens.Value() == 900; }));
  EXPECT_TRUE(Eventually([&] { return metrics_.running.Value() == 0; }));
  EXPECT_THAT(policy_.Choose(kChunkedBelow, true).choice.load, HasSubstr("decode had work 0 s ago"));
  slow_clock_.Advance(std::chrono::seconds(29));
  slow_clients_.CancelStalled();
  EXPECT_EQ(metrics_.clients_stalled.Value(), 0);
  slow_clock_.Advance(std::chrono::seconds(1));
  slow_clients_.CancelStalled();
  EXPECT_EQ(metrics_.clients_stalled.Value(), 1);
  while (reader->Read(&reply)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(RouterRpcTest, TellsTheClientThatDecodeServesOtherWeights) {
  decode_.serves_other_weights = true;
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(5), text, finished);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "decode: restart decode");
  EXPECT_EQ(decode_.refusals, 1);
}

TEST_F(RouterRpcTest, WaitsForPrefillThatIsAway) {
  prefill_server_.reset();
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    prefill_server_ = StartRole("prefill", prefill_);
  });
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(5), text, finished);
  later.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, ExpectedText({'x', 'y'}, 5));
}

TEST_F(RouterRpcTest, CancellingEndsTheSession) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status =
      Generate(Request(900), text, finished, [](grpc::ClientContext& context) { context.TryCancel(); });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
  EXPECT_TRUE(Eventually([&] { return metrics_.running.Value() == 0; }));
}

TEST_F(RouterRpcTest, DeadlineEndsTheSession) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(900), text, finished, nullptr, std::chrono::milliseconds(200));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
}

TEST_F(RouterRpcTest, ScoresTokenizesAndDescribes) {
  grpc::ClientContext score_context, tokenize_context, detokenize_context, model_context;
  v1::ScoreRequest score;
  score.set_text("hi!");
  const auto reader = client_->Score(&score_context, score);
  v1::ScoreResponse scores;
  int positions = 0;
  while (reader->Read(&scores)) positions += scores.scores_size();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(positions, 3);

  v1::TokenizeRequest tokenize;
  tokenize.set_text("hi!");
  v1::TokenizeResponse ids;
  ASSERT_TRUE(client_->Tokenize(&tokenize_context, tokenize, &ids).ok());
  EXPECT_THAT(ids.ids(), ::testing::ElementsAre(testing::kBos, testing::kHi, '!'));
  EXPECT_THAT(ids.pieces(), ::testing::ElementsAre("<|bos|>", "hi", "!"));

  v1::DetokenizeRequest detokenize;
  detokenize.add_ids(testing::kBos);
  detokenize.add_ids(testing::kHi);
  v1::DetokenizeResponse text;
  ASSERT_TRUE(client_->Detokenize(&detokenize_context, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "hi");

  v1::GetModelResponse model;
  ASSERT_TRUE(client_->GetModel(&model_context, {}, &model).ok());
  EXPECT_EQ(model.name(), "tiny");
}

TEST_F(RouterRpcTest, TokenizesOnlyWhatCouldFitTheContext) {
  const auto tokenize = [&](const v1::TokenizeRequest& request) {
    grpc::ClientContext context;
    v1::TokenizeResponse reply;
    return client_->Tokenize(&context, request, &reply);
  };
  v1::TokenizeRequest text;
  text.set_text(std::string(999, 'x'));  // and BOS
  EXPECT_TRUE(tokenize(text).ok());
  text.set_text(std::string(13'000, 'x'));  // "<|assistant|>" a thousand times is as long
  grpc::Status status = tokenize(text);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "text: has more than 1000 tokens, all that the model's context of 1000 tokens can hold");
  text.mutable_text()->push_back('x');
  status = tokenize(text);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "text: has more than 13000 bytes, all that the model's context of 1000 tokens can hold");

  v1::TokenizeRequest chat;
  for (int i = 0; i < 1001; ++i) chat.mutable_chat()->add_messages()->set_role("user");
  status = tokenize(chat);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("chat.messages: has more than 1000 messages"));
}

TEST_F(RouterRpcTest, DetokenizesOnlyWhatFitsTheContext) {
  const auto detokenize = [&](int ids, int32_t id) {
    grpc::ClientContext context;
    v1::DetokenizeRequest request;
    for (int i = 0; i < ids; ++i) request.add_ids(id);
    v1::DetokenizeResponse reply;
    return client_->Detokenize(&context, request, &reply);
  };
  EXPECT_TRUE(detokenize(1000, testing::kHi).ok());
  grpc::Status status = detokenize(1001, testing::kHi);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "ids: has more than 1000 ids, all that the model's context of 1000 tokens can hold");
  status = detokenize(1, -1);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("ids"));
}

TEST_F(RouterRpcTest, SaysHowFarTheModelIs) {
  board_.SetModel(*board_.Ready());
  board_.SetProgress(1, 4);
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(5), text, finished);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "model is loading: 25 %");
}

TEST_F(RouterRpcTest, FollowsTheWeightStore) {
  ModelBoard board;
  auto store = std::make_unique<FakeStore>("a");
  std::unique_ptr<RpcServer> server = StartRole("weight_store", *store);
  WeightFollower follower(Address("weight_store"), board, metrics_.weight_store_up);
  EXPECT_TRUE(Eventually([&] { return board.fingerprint() == "a"; }));
  EXPECT_THAT(*(*board.Described())->text->Encode("hi", /*plain=*/false), ::testing::ElementsAre(testing::kHi));
  EXPECT_TRUE(Eventually([&] { return board.Ready().status().message() == "model is loading: 25 %"; }));
  store->ready = true;
  EXPECT_TRUE(Eventually([&] { return board.Ready().ok(); }));
  EXPECT_EQ(metrics_.weight_store_up.Value(), 1);

  server.reset();
  EXPECT_TRUE(Eventually([&] { return metrics_.weight_store_up.Value() == 0; }));
  EXPECT_TRUE(board.Ready().ok());
  FakeStore other("b");
  other.ready = true;
  server = StartRole("weight_store", other);
  EXPECT_TRUE(Eventually([&] { return board.fingerprint() == "b" && board.Ready().ok(); }));
  EXPECT_THAT(*(*board.Ready())->text->Encode("hi", /*plain=*/false),
              ::testing::ElementsAre(testing::kBos, testing::kHi));
}

}  // namespace
}  // namespace moestro
