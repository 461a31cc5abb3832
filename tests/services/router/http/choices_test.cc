#include "services/router/http/choices.h"

#include <gtest/gtest.h>

#include <thread>

#include "services/router/http/response.h"
#include "services/router/http/worker_pool.h"
#include "tests/services/router/rpc/router_rpc_fixture.h"

namespace moestro::router {
namespace {

class ChoicesTest : public RouterRpcTest {
 protected:
  // Leaves once it is told that its request waits.
  struct Client final : Answer {
    absl::Status Waiting() override {
      ++waits;
      return absl::CancelledError("told");
    }
    absl::Status Started(size_t, uint32_t, const AdmissionNotice&) override { return absl::OkStatus(); }
    absl::Status Prefill(size_t, const PrefillProgress&) override { return absl::OkStatus(); }
    absl::Status Tokens(size_t, const std::vector<Token>&, const std::string&) override { return absl::OkStatus(); }
    absl::Status Finished(size_t, const RequestSummary&) override { return absl::OkStatus(); }
    std::atomic<int> waits{0};
  };

  // Sends a document at the end.
  struct Reader final : Answer {
    explicit Reader(Response& response) : response(response) {}
    absl::Status Waiting() override { return absl::OkStatus(); }
    absl::Status Started(size_t, uint32_t, const AdmissionNotice&) override { return absl::OkStatus(); }
    absl::Status Prefill(size_t, const PrefillProgress&) override { return absl::OkStatus(); }
    absl::Status Tokens(size_t, const std::vector<Token>&, const std::string&) override { return absl::OkStatus(); }
    absl::Status Finished(size_t, const RequestSummary&) override { return response.SendJson(200, "{}"); }
    Response& response;
  };

  // Counts how often it was asked.
  class CountingClock final : public RequestClock {
   public:
    TimePoint Now() override {
      const TimePoint now(seconds.load());
      ++asked;
      return now;
    }
    void SleepFor(Duration) override {}
    void WaitFor(Condition&, MutexLock&, Duration, absl::FunctionRef<bool()>) override {}
    std::atomic<std::chrono::seconds> seconds{std::chrono::seconds(1000)};
    std::atomic<int> asked{0};
  };

  CountingClock clients_clock_;
  WorkerPool workers_{0};
  HttpApi api_{.runner = runner_,
               .board = board_,
               .peers = peers_,
               .workers = workers_,
               .registry = registry_,
               .metrics = metrics_,
               .access = access_,
               .clock = clients_clock_,
               .ready = [] { return absl::OkStatus(); }};
};

// A first byte keeps a proxy from giving up.
TEST_F(ChoicesTest, WhoWaitsTenSecondsForARoleIsTold) {
  decode_server_.reset();
  Response response(
      slow_clients_, [] {}, [] {});
  response.call().SetTenant(*access_.Identify({}));
  Client client;
  GenerateInput input;
  input.prompt = TokenList{'x', 'y'};
  std::thread request([&] { EXPECT_EQ(RunChoices(api_, response, "id", {input}, client).message(), "told"); });
  EXPECT_TRUE(Eventually([&] { return clients_clock_.asked > 0; }));
  clients_clock_.seconds = std::chrono::seconds(1009);
  const int before = clients_clock_.asked;
  EXPECT_TRUE(Eventually([&] { return clients_clock_.asked > before + 2; }));
  EXPECT_EQ(client.waits, 0);
  clients_clock_.seconds = std::chrono::seconds(1010);
  EXPECT_TRUE(Eventually([&] { return client.waits > 0; }));
  response.Close();
  request.join();
}

TEST_F(ChoicesTest, AnAnswerThatIsCutShortSaysSo) {
  const auto header = [&](uint32_t asked) -> std::string {
    Response response(
        slow_clients_, [] {}, [] {});
    response.call().SetTenant(*access_.Identify({}));
    Reader reader(response);
    GenerateInput input;
    input.prompt = TokenList(990, 'x');
    input.max_tokens = asked;
    EXPECT_EQ(RunChoices(api_, response, "id", {input}, reader), absl::OkStatus());
    const HttpHeaders headers = response.Take().head->headers;
    EXPECT_EQ(headers.at("Content-Type"), "application/json");
    return headers.contains(kMaxTokensHeader) ? headers.at(kMaxTokensHeader) : "none";
  };
  EXPECT_EQ(header(11), "10");
  EXPECT_EQ(header(10), "none");
  EXPECT_EQ(header(0), "none") << "it asked for no length";
}

}  // namespace
}  // namespace moestro::router
