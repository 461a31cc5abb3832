// A generation on a FakeNode, what it gives, and what it should give.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "services/router/request/generation.h"
#include "tests/services/router/fake_node.h"

namespace moestro::testing {

class RecordingSink final : public router::GenerationSink {
 public:
  absl::Status OnAdmitted(const router::AdmissionNotice& given) override {
    EXPECT_TRUE(ids.empty());
    EXPECT_EQ(++admitted, 1);
    notice = given;
    return absl::OkStatus();
  }
  absl::Status OnPrefill(const PrefillProgress& given) override {
    EXPECT_EQ(admitted, 1);
    EXPECT_LE(given.done_tokens, given.total_tokens);
    progress.push_back(given);
    return absl::OkStatus();
  }
  absl::StatusOr<bool> OnToken(const Token& token) override {
    if (fails) return absl::CancelledError("the client went away");
    EXPECT_FLOAT_EQ(token.logprob, -0.5f * static_cast<float>(ids.size()));
    ids.push_back(token.id);
    return ids.size() != last;
  }
  int admitted = 0;
  bool fails = false;
  size_t last = 0;  // the answer ends with this token; 0 = by itself
  router::AdmissionNotice notice;
  std::vector<PrefillProgress> progress;
  std::vector<int32_t> ids;
};

inline router::GenerateJob Job(uint32_t max_tokens = 6) {
  return {.request_id = "id",
          .fingerprint = kWeights,
          .prompt = {5, 6, 7},
          .max_tokens = max_tokens,
          .sampling = {.seed = 11},
          .stop_ids = {},
          .cache_scope = "scope"};
}

// What `job` gives, stop ids aside, on a node where nothing goes wrong.
inline std::vector<int32_t> Expected(const router::GenerateJob& job) {
  std::vector<int32_t> tokens = job.prompt;
  for (uint32_t i = 0; i < job.max_tokens; ++i) tokens.push_back(FakeNode::Model(tokens, job.sampling, i).id);
  return {tokens.begin() + static_cast<ptrdiff_t>(job.prompt.size()), tokens.end()};
}
inline std::vector<int32_t> Expected(uint32_t max_tokens) { return Expected(Job(max_tokens)); }

struct Result {
  absl::Status status;
  router::RequestSummary summary;
  router::AdmissionNotice notice;
  std::vector<PrefillProgress> progress;
  std::vector<int32_t> ids;
};

// The sink ends the answer with token number `last`, unless it is 0.
inline Result RunJob(FakeNode& node, const router::GenerateJob& job, size_t last = 0) {
  RecordingSink sink;
  sink.last = last;
  router::Generation generation(job, node.Environment(), node.Call(), sink);
  Result result;
  result.status = generation.Run();
  result.summary = generation.Summary();
  result.notice = sink.notice;
  result.progress = sink.progress;
  result.ids = sink.ids;
  EXPECT_THAT(node.cache_scopes, ::testing::Each(job.cache_scope)) << "whatever happens, every attempt keeps the scope";
  return result;
}

// As many as a request takes when nothing goes wrong.
inline int StepsOfCleanRun(const router::PathSettings& settings = kAllToPrefill) {
  FakeNode node(settings);
  RunJob(node, Job());
  return node.steps;
}

// Sends every prompt of these tests to decode.
inline constexpr router::PathSettings kAllToDecode{.chunked_below_tokens = 1000};

}  // namespace moestro::testing
