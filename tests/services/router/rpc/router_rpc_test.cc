// What clients ask a router whose roles all work.
#include "common/process/node_options.h"
#include "tests/services/router/rpc/router_rpc_fixture.h"

namespace moestro::router {
namespace {

using ::testing::HasSubstr;

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

TEST_F(RouterRpcTest, TheEndTellsWhetherPrefillRoundedInputs) {
  for (const bool rounds : {false, true}) {
    prefill_.fp8_activations = rounds;
    std::string text;
    v1::GenerateResponse::Finished finished;
    const grpc::Status status = Generate(Request(3), text, finished);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(finished.fp8_activations(), rounds);
  }
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

TEST_F(RouterRpcTest, AStopTextEndsTheAnswer) {
  const std::string whole = ExpectedText({'x', 'y'}, 40);
  v1::GenerateRequest request = Request(40);
  request.add_stop("NEVER");
  request.add_stop(whole.substr(11, 4));
  const size_t place = whole.find(whole.substr(11, 4));
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(request, text, finished);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text, whole.substr(0, place));
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(finished.stop_text(), whole.substr(11, 4));
  EXPECT_EQ(finished.usage().completion_tokens(), place + 4);
  EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
}

TEST_F(RouterRpcTest, TheBeginningOfAStopTextComesWithTheEnd) {
  const std::string whole = ExpectedText({'x', 'y'}, 12);
  v1::GenerateRequest request = Request(12);
  request.add_stop(whole.substr(9) + "?");
  std::string text;
  v1::GenerateResponse::Finished finished;
  ASSERT_TRUE(Generate(request, text, finished).ok());
  EXPECT_EQ(text, whole);
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(finished.stop_text(), "");
}

TEST_F(RouterRpcTest, AbortsByTheClientsId) {
  const auto abort = [&](const char* id) {
    grpc::ClientContext context;
    v1::AbortRequest request;
    request.set_request_id(id);
    v1::AbortResponse reply;
    return client_->Abort(&context, request, &reply).error_code();
  };
  v1::GenerateRequest request = Request(900);
  request.set_request_id("mine");
  pool_.decode_hangs_at = 10;  // or the request may end before the others are answered
  std::string text;
  v1::GenerateResponse::Finished finished;
  bool aborted = false;
  const grpc::Status status = Generate(request, text, finished, [&](grpc::ClientContext&) {
    if (std::exchange(aborted, true)) return;
    EXPECT_EQ(started_.request_id(), "mine");
    std::string other;
    v1::GenerateResponse::Finished none;
    EXPECT_EQ(Generate(request, other, none).error_code(), grpc::StatusCode::ALREADY_EXISTS);
    EXPECT_EQ(abort("others"), grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(abort("mine"), grpc::StatusCode::OK);
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(status.error_message(), "aborted by its request_id");
  EXPECT_LT(text.size(), 900u);
  EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
  EXPECT_TRUE(Eventually([&] { return abort("mine") == grpc::StatusCode::NOT_FOUND; }));
  EXPECT_TRUE(Generate(Request(3), text, finished).ok());
  EXPECT_EQ(started_.request_id().size(), 32u);
}

// Whoever has the last reply may look at the metrics, and use the name again.
TEST_F(RouterRpcTest, TheLastReplyComesWhenTheRequestIsCountedAndItsNameFree) {
  class Replies final : public GenerateReplies {
   public:
    explicit Replies(std::function<void()> finished) : finished_(std::move(finished)) {}
    absl::Status Started(const std::string&, uint32_t, const AdmissionNotice&) override { return absl::OkStatus(); }
    absl::Status Prefill(const PrefillProgress&) override { return absl::OkStatus(); }
    absl::Status Tokens(const std::vector<Token>&, const std::string&) override { return absl::OkStatus(); }
    absl::Status Finished(const RequestSummary&) override {
      finished_();
      return absl::OkStatus();
    }

   private:
    const std::function<void()> finished_;
  };
  const std::shared_ptr<Tenant> tenant = *access_.Identify({});
  const ClientCall client;
  const auto prefill = peers_.Prefill(client);
  const auto decode = peers_.Decode(client);
  int finished = 0;
  Replies replies([&] {
    ++finished;
    EXPECT_THAT(registry_.Text(), HasSubstr("moestro_request_seconds_count{role=\"router\"} 1\n"));
    EXPECT_TRUE(absl::IsNotFound(runner_.Abort(*tenant, "mine")));
  });
  const auto read = [](const ServedModel&) -> absl::StatusOr<GenerateInput> {
    GenerateInput input;
    input.prompt = TokenList{'x', 'y'};
    input.max_tokens = 3;
    input.request_id = "mine";
    return input;
  };
  const CallPeers call{.prefill = *prefill,
                       .decode = *decode,
                       .check = [&] { return client.Check(); },
                       .cancel = [] {},
                       .tenant = tenant};
  EXPECT_EQ(runner_.Generate(read, call, replies), absl::OkStatus());
  EXPECT_EQ(finished, 1);
}

TEST_F(RouterRpcTest, TellsHowLongTheAnswerMayBecome) {
  for (const auto& [asked, most] : {std::pair(5u, 5u), std::pair(5000u, 998u)}) {
    grpc::ClientContext context;
    const auto reader = client_->Generate(&context, Request(asked));
    v1::GenerateResponse reply;
    ASSERT_TRUE(reader->Read(&reply));
    EXPECT_EQ(reply.started().max_tokens(), most);
    context.TryCancel();
    reader->Finish();
  }
  EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
}

// It does not wait for the role that computes.
TEST_F(RouterRpcTest, AbortsARequestWhoseRoleHangs) {
  for (std::atomic<bool>* hang : {&pool_.prefill_hangs, &pool_.decode_hangs}) {
    const int before = pool_.hangs;
    *hang = true;
    v1::GenerateRequest request = Request(5);
    request.set_request_id("mine");
    std::thread aborter([&] {
      EXPECT_TRUE(Eventually([&] { return pool_.hangs > before; }));
      EXPECT_TRUE(runner_.Abort(**access_.Identify({}), "mine").ok());
    });
    std::string text;
    v1::GenerateResponse::Finished finished;
    EXPECT_EQ(Generate(request, text, finished).error_code(), grpc::StatusCode::CANCELLED);
    aborter.join();
    EXPECT_TRUE(Eventually([&] { return pool_.sessions == 0; }));
  }
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

  roles_.Poll();
  v1::GetModelResponse model;
  ASSERT_TRUE(client_->GetModel(&model_context, {}, &model).ok());
  EXPECT_EQ(model.name(), "tiny");
  EXPECT_TRUE(model.ready());
  EXPECT_EQ(model.default_temperature(), 0.5f);
  EXPECT_EQ(model.default_top_p(), 0.75f);
  EXPECT_EQ(model.default_top_k(), 7);
  EXPECT_EQ(model.default_max_tokens(), 0u);
  EXPECT_EQ(model.bos_token(), "<|bos|>");
  EXPECT_EQ(model.eos_token(), "<|end|>");
  EXPECT_EQ(model.chat_template(), "a template");
  EXPECT_EQ(model.tool_use_template(), "another");
  EXPECT_EQ(model.created_seconds(), 1234);
  EXPECT_EQ(model.version(), ProgramVersion());
  ASSERT_EQ(model.roles_size(), 2);
  EXPECT_EQ(model.roles(0).name(), "prefill");
  EXPECT_EQ(model.roles(1).name(), "decode");
  EXPECT_TRUE(model.roles(1).up());
}

// The fakes ignore it: what a client asks for must reach the roles, or be refused.
TEST_F(RouterRpcTest, AConstraintIsCheckedAndPassedOn) {
  v1::GenerateRequest request = Request(3);
  request.mutable_constraint()->set_kind(v1::Constraint::KIND_GRAMMAR);
  std::string text;
  v1::GenerateResponse::Finished finished;
  grpc::Status status = Generate(request, text, finished);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("constraint.text: is empty"));
  request.mutable_constraint()->set_text("root ::= \"a\"");
  ASSERT_TRUE(Generate(request, text, finished).ok());
  EXPECT_EQ(prefill_.Constraint().SerializeAsString(), request.constraint().SerializeAsString());
  EXPECT_EQ(decode_.Constraint().SerializeAsString(), request.constraint().SerializeAsString());
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
  text.set_text(std::string(13'000, 'x'));
  grpc::Status status = tokenize(text);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "text: has 13001 tokens, and the model's context has 1000");
  // Longer than "<|assistant|>" as often as tokens are counted.
  text.set_text(std::string((1000 + (256 << 10)) * 13 + 1, 'x'));
  status = tokenize(text);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "text: has more than 3420872 bytes, the most that the model's context of 1000 tokens can hold");

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
            "ids: has more than 1000 ids, the most that the model's context of 1000 tokens can hold");
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
  std::atomic<int> steps = 0;
  WeightFollower follower(Address("weight_store"), board, metrics_.weight_store_up, [&] { ++steps; });
  EXPECT_TRUE(Eventually([&] { return board.fingerprint() == "a"; }));
  EXPECT_THAT(*(*board.Described())->text->Encode("hi", /*plain=*/false), ::testing::ElementsAre(testing::kHi));
  EXPECT_TRUE(Eventually([&] { return board.Ready().status().message() == "model is loading: 25 %"; }));
  store->ready = true;
  EXPECT_TRUE(Eventually([&] { return board.Ready().ok(); }));
  EXPECT_EQ(metrics_.weight_store_up.Value(), 1);
  EXPECT_EQ(steps, 1) << "a quarter was loaded, whatever else the store said of it";

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
}  // namespace moestro::router
