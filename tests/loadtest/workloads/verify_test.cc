#include "loadtest/workloads/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "loadtest/report/verify.h"
#include "loadtest/run/runner.h"
#include "loadtest/workloads/fixed.h"
#include "tests/loadtest/fake_transport.h"

namespace moestro::loadtest {
namespace {

VerifyOptions TwoClients() {
  return {.requests = 400,
          .prompt = *Lengths::Parse("", "1-50"),
          .output = *Lengths::Parse("", "1-20"),
          .vocab_size = 1000,
          .max_context_tokens = 60,
          .seed = 7};
}

TEST(Verify, MakesAMixedSeededLot) {
  const auto requests = MakeVerifyRequests(TwoClients());
  const auto again = MakeVerifyRequests(TwoClients());
  std::map<std::string, int> groups;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[i];
    ++groups[request.group];
    EXPECT_EQ(request.token_ids, again[i].token_ids);
    EXPECT_LE(request.token_ids.size() + request.max_tokens, 60U);
    EXPECT_EQ(request.cancel_after_tokens.has_value(), request.group == "cancelled");
    EXPECT_LE(request.cancel_after_tokens.value_or(0), request.max_tokens);
  }
  EXPECT_NEAR(groups["cancelled"], 80, 30);
  EXPECT_NEAR(groups["greedy"], groups["sampled"], 60);
}

// The token depends on the request only, but for what `wrong` says.
RunResult RunAll(const std::vector<Request>& requests, int concurrency, int64_t wrong_tag = -1) {
  FakeTransport transport([](const Request&, int) { return FakeTimes{}; },
                          [=](const Request& request, int position) {
                            const bool wrong = request.tag == wrong_tag && position == 1 && request.group != "alone";
                            return static_cast<int32_t>(request.tag) * 100 + position + (wrong ? 50 : 0);
                          });
  FixedWorkload workload(requests, concurrency);
  return RunWorkload(workload, transport, {});
}

TEST(Verify, SameTokensPassAndCancelledOnesAreComparedAsFarAsTheyCame) {
  const auto requests = MakeVerifyRequests(TwoClients());
  const RunResult crowded = RunAll(requests, 16);
  const RunResult alone = RunAll(MakeAloneRequests(requests, crowded.records), 1);
  const Verdict verdict = CompareTokens(crowded.records, alone.records);
  EXPECT_TRUE(verdict.mismatches.empty());
  EXPECT_EQ(verdict.not_compared, 0);
  EXPECT_GT(verdict.prefixes_compared, 20);
  EXPECT_GT(verdict.compared, 300);
  Report report{.workload = "verify"};
  AddVerifySection(verdict, crowded.records, alone.records, false, report);
  EXPECT_THAT(report.findings[0], testing::HasSubstr("0 mismatches"));
  EXPECT_THAT(report.findings[0], testing::HasSubstr("; 0 not compared"));
  EXPECT_THAT(report.findings[1], testing::HasSubstr("No request waited longer than 1.00 s"));
}

TEST(Verify, ADifferentTokenIsFoundAndNamed) {
  VerifyOptions options = TwoClients();
  options.cancelled_share = 0;
  options.output = *Lengths::Parse("", "5");
  options.requests = 10;
  const auto requests = MakeVerifyRequests(options);
  const RunResult crowded = RunAll(requests, 4, /*wrong_tag=*/6);
  const RunResult alone = RunAll(MakeAloneRequests(requests, crowded.records), 1, /*wrong_tag=*/6);
  const Verdict verdict = CompareTokens(crowded.records, alone.records);
  ASSERT_EQ(verdict.mismatches.size(), 1U);
  EXPECT_EQ(verdict.mismatches[0].index, 6);
  EXPECT_EQ(verdict.mismatches[0].position, 1U);
  EXPECT_EQ(verdict.mismatches[0].what, "token 651, alone 601");
  Report report{.workload = "verify"};
  AddVerifySection(verdict, crowded.records, alone.records, false, report);
  EXPECT_THAT(ReportMarkdown(report), testing::HasSubstr("token 651, alone 601"));
}

TEST(CompareTokens, LengthsMatterForCompletedOnesOnly) {
  Record first, second;
  first.ended = second.ended = 1;
  first.tokens = {1, 2};
  second.tokens = {1, 2, 3};
  EXPECT_EQ(CompareTokens({first}, {second}).mismatches.size(), 1U);
  EXPECT_EQ(CompareTokens({second}, {first}).mismatches.size(), 1U);
  first.status = absl::CancelledError("");
  first.cancelled = 1;
  EXPECT_EQ(CompareTokens({first}, {second}).mismatches.size(), 0U);
  EXPECT_EQ(CompareTokens({first}, {}).not_compared, 1);
}

Record WithTokens(const absl::Status& status) {
  Record record;
  record.request_id = "r1";
  record.ended = 1;
  record.tokens = {1, 2};
  record.status = status;
  return record;
}

// Errors are allowed.
absl::Status Check(const std::vector<Record>& crowded, const std::vector<Record>& alone, bool interrupted) {
  return CheckVerdict(CompareTokens(crowded, alone), crowded, alone, /*errors_allowed=*/true, interrupted);
}

TEST(CheckVerdict, NothingComparedIsNoPass) {
  const Record completed = WithTokens(absl::OkStatus()), failed = WithTokens(absl::UnavailableError("router died"));
  Record without_tokens = failed;
  without_tokens.tokens.clear();
  EXPECT_EQ(Check({without_tokens}, {}, false).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Check({completed}, {failed}, false).message(),
            "nothing was compared; requests failed, the first one (r1) so: router died");
  EXPECT_EQ(Check({completed}, {}, true).message(), "nothing was compared before the interrupt");
}

TEST(CheckVerdict, WhatIsLeftOverIsNoPassButByAnInterrupt) {
  Record first = WithTokens(absl::OkStatus()), second = first;
  second.tag = 1;
  Record second_alone = second;
  second_alone.status = absl::UnavailableError("router died");
  const absl::Status left_over = Check({first, second}, {first, second_alone}, false);
  EXPECT_EQ(left_over.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(left_over.message()), testing::HasSubstr("1 requests that got tokens were not compared"));
  EXPECT_TRUE(Check({first, second}, {first}, true).ok());
}

TEST(CheckVerdict, ErrorsAreNoPassUnlessAllowed) {
  const std::vector<Record> crowded = {WithTokens(absl::UnavailableError("prefill died"))};
  const std::vector<Record> alone = {WithTokens(absl::OkStatus())};
  EXPECT_TRUE(Check(crowded, alone, false).ok()) << "as far as it came, it is compared";
  EXPECT_EQ(CheckVerdict(CompareTokens(crowded, alone), crowded, alone, /*errors_allowed=*/false, false).code(),
            absl::StatusCode::kInternal)
      << "not UNAVAILABLE, which is this process's own";
}

}  // namespace
}  // namespace moestro::loadtest
