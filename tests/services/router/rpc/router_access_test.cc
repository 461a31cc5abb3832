// API keys over real gRPC.
#include "absl/strings/str_cat.h"
#include "common/access/api_key.h"
#include "common/access/keys_file.h"
#include "services/router/access/retry_after.h"
#include "tests/services/router/rpc/router_rpc_fixture.h"

namespace moestro::router {
namespace {

using ::testing::HasSubstr;

std::string KeysPath() { return absl::StrCat(::testing::TempDir(), "router_access_", getpid(), ".toml"); }

// Writes keys for alice (two requests a minute, 40 tokens a minute) and bob, who may score only.
struct Keys {
  Keys() {
    std::filesystem::remove(KeysPath());
    alice = Add({.name = "alice", .limits = {.requests_per_minute = 2, .tokens_per_minute = 40}});
    bob = Add({.name = "bob", .endpoints = {false, true, false, false}});
  }
  static std::string Add(const access::KeyEntry& entry) {
    const std::string key = *access::NewApiKey();
    EXPECT_EQ(access::AddKey(KeysPath(), entry, key), absl::OkStatus());
    return key;
  }
  std::string alice;
  std::string bob;
};

class RouterAccessTest : private Keys, public RouterRpcTest {
 protected:
  RouterAccessTest()
      : RouterRpcTest(KeysPath()),
        over_tcp_(v1::InferenceService::NewStub(
            ConnectServer({.address = absl::StrCat("127.0.0.1:", router_server_->port(1))}))) {}
  ~RouterAccessTest() override { std::filesystem::remove(KeysPath()); }

  struct Outcome {
    grpc::Status status;
    std::string retry_after;
  };
  Outcome Ask(const std::string& name, const std::string& value, int prompt = 2) {
    v1::GenerateRequest request = Request(2);
    while (request.token_ids().ids_size() < prompt) request.mutable_token_ids()->add_ids('x');
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kHang);
    if (!name.empty()) context.AddMetadata(name, value);
    const auto reader = over_tcp_->Generate(&context, request);
    v1::GenerateResponse reply;
    while (reader->Read(&reply)) {
    }
    Outcome outcome{.status = reader->Finish(), .retry_after = ""};
    const auto& trailing = context.GetServerTrailingMetadata();
    if (const auto found = trailing.find(kRetryAfter); found != trailing.end()) {
      outcome.retry_after = {found->second.data(), found->second.size()};
    }
    return outcome;
  }
  const std::string& alice_key() const { return alice; }
  const std::string& bob_key() const { return bob; }

  const std::unique_ptr<v1::InferenceService::Stub> over_tcp_;
};

TEST_F(RouterAccessTest, OnlyKeysOpenTheDoor) {
  EXPECT_EQ(Ask("", "").status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Ask("authorization", "Bearer " + *access::NewApiKey()).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Ask("authorization", "Bearer " + bob_key()).status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  grpc::ClientContext context;
  v1::GetModelResponse model;
  EXPECT_EQ(over_tcp_->GetModel(&context, {}, &model).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext tokenize;
  v1::TokenizeResponse tokens;
  EXPECT_EQ(over_tcp_->Tokenize(&tokenize, {}, &tokens).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(pool_.last_id, 0u);  // none of these got as far as decode

  decode_.expected_scope = (*access_.Identify({.authorization = {}, .api_key = alice_key()}))->CacheScope("");
  EXPECT_TRUE(Ask("authorization", "Bearer " + alice_key()).status.ok());
  EXPECT_TRUE(Ask("x-api-key", alice_key()).status.ok());
}

// Bytes that are no request: their sender learns only that it needs a key.
TEST_F(RouterAccessTest, NothingIsParsedWithoutAKey) {
  v1::DetokenizeRequest request;
  request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(99, std::string(1 << 20, 'x'));
  grpc::ClientContext context;
  v1::DetokenizeResponse reply;
  EXPECT_EQ(over_tcp_->Detokenize(&context, request, &reply).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(RouterAccessTest, RefusalsSayWhenToComeBack) {
  decode_.expected_scope = (*access_.Identify({.authorization = {}, .api_key = alice_key()}))->CacheScope("");
  Outcome outcome = Ask("x-api-key", alice_key(), 41);
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("key 'alice'"));
  EXPECT_EQ(outcome.retry_after, "");  // more than the key may ever use at once
  EXPECT_TRUE(Ask("x-api-key", alice_key(), 30).status.ok());
  outcome = Ask("x-api-key", alice_key());
  EXPECT_EQ(outcome.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(outcome.status.error_message(), HasSubstr("requests-per-minute"));
  EXPECT_EQ(outcome.retry_after, "30");
}

TEST_F(RouterAccessTest, TheUnixSocketNeedsNoKey) {
  std::string text;
  v1::GenerateResponse::Finished finished;
  const grpc::Status status = Generate(Request(2), text, finished);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text.size(), 2u);
}

}  // namespace
}  // namespace moestro::router
