#include "common/rpc/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace moestro {
namespace {

TEST(ConvertTest, ATopPOfZeroIsOff) {
  v1::Sampling sampling;
  sampling.set_temperature(0.5f);
  EXPECT_EQ(FromProto(sampling).top_p, 1.0f);
  sampling.set_top_p(0.25f);
  EXPECT_EQ(FromProto(sampling).top_p, 0.25f);
  EXPECT_EQ(FromProto(sampling).temperature, 0.5f);
}

TEST(ConvertTest, SamplingKeepsEveryField) {
  const Sampling all{.temperature = 0.5f,
                     .top_p = 0.25f,
                     .top_k = 3,
                     .seed = 4,
                     .min_p = 0.125f,
                     .presence_penalty = -1,
                     .frequency_penalty = 2,
                     .repetition_penalty = 1.5f,
                     .logit_bias = {{7, -100.0f}},
                     .top_logprobs = 8,
                     .constraint = {Constraint::Kind::kRegex, "a*"}};
  const Sampling same = FromProto(ToProto(all));
  EXPECT_EQ(same.top_p, 0.25f);
  EXPECT_EQ(same.top_k, 3);
  EXPECT_EQ(same.seed, 4u);
  EXPECT_EQ(same.min_p, 0.125f);
  EXPECT_EQ(same.presence_penalty, -1);
  EXPECT_EQ(same.frequency_penalty, 2);
  EXPECT_EQ(same.repetition_penalty, 1.5f);
  EXPECT_THAT(same.logit_bias, testing::ElementsAre(std::pair(7, -100.0f)));
  EXPECT_EQ(same.top_logprobs, 8u);
  EXPECT_EQ(same.constraint.kind, Constraint::Kind::kRegex);
  EXPECT_EQ(same.constraint.text, "a*");
  const Sampling none = FromProto(v1::Sampling());
  EXPECT_EQ(none.min_p, 0);
  EXPECT_EQ(none.repetition_penalty, 1);
}

TEST(ConvertTest, KindsOfConstraintsHaveTheSameNumbers) {
  const std::pair<Constraint::Kind, v1::Constraint::Kind> kinds[] = {
      {Constraint::Kind::kNone, v1::Constraint::KIND_NONE},
      {Constraint::Kind::kJsonObject, v1::Constraint::KIND_JSON_OBJECT},
      {Constraint::Kind::kJsonSchema, v1::Constraint::KIND_JSON_SCHEMA},
      {Constraint::Kind::kGrammar, v1::Constraint::KIND_GRAMMAR},
      {Constraint::Kind::kRegex, v1::Constraint::KIND_REGEX},
  };
  for (const auto& [kind, wire] : kinds) {
    EXPECT_EQ(ToProto(Constraint{kind, ""}).kind(), wire);
    EXPECT_EQ(FromProto(ToProto(Constraint{kind, ""})).kind, kind);
  }
  EXPECT_EQ(v1::Constraint::Kind_ARRAYSIZE, 5);
}

TEST(ConvertTest, ATokenKeepsItsAlternatives) {
  const Token token = FromProto(ToProto(Token{5, -1, {{6, -0.5f}, {5, -1.0f}}}));
  EXPECT_EQ(token.id, 5);
  EXPECT_EQ(token.logprob, -1);
  ASSERT_EQ(token.top.size(), 2u);
  EXPECT_EQ(token.top[0].id, 6);
  EXPECT_EQ(token.top[1].logprob, -1);
}

TEST(ConvertTest, AScoreWithoutALogprobStaysWithout) {
  const ScoredToken first = FromProto(ToProto(ScoredToken{.id = 7, .logprob = std::nullopt, .top = {}}));
  EXPECT_EQ(first.id, 7);
  EXPECT_EQ(first.logprob, std::nullopt);
  const ScoredToken next = FromProto(ToProto(ScoredToken{.id = 8, .logprob = 0, .top = {{9, -1.5f}}}));
  EXPECT_EQ(next.logprob, 0.0f);
  ASSERT_EQ(next.top.size(), 1u);
  EXPECT_EQ(next.top[0].id, 9);
  EXPECT_EQ(next.top[0].logprob, -1.5f);
}

TEST(ConvertTest, CostsKeepTheirPoints) {
  const PromptCost cost{.way = PromptWay::kStreamed,
                        .alone = true,
                        .decoding = 2,
                        .points = {{16, 0.5, 0.25}, {32, 0.75, 0}},
                        .seconds_per_pair = 1e-9};
  const std::vector<PromptCost> costs = FromProto(ToProto(std::vector<PromptCost>{cost, cost}));
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[1].way, PromptWay::kStreamed);
  EXPECT_TRUE(costs[1].alone);
  EXPECT_EQ(costs[1].decoding, 2u);
  ASSERT_EQ(costs[1].points.size(), 2u);
  EXPECT_EQ(costs[1].points[0].slack, 0.25);
  EXPECT_EQ(costs[1].points[1].tokens, 32u);
  EXPECT_EQ(costs[1].points[1].seconds, 0.75);
  EXPECT_EQ(costs[1].seconds_per_pair, 1e-9);
}

TEST(ConvertTest, CostsThatMakeNoSenseAreLeftOut) {
  v1::CostsResponse response;
  const auto add = [&] {
    v1::PromptCost& cost = *response.add_costs();
    cost.set_way(v1::PROMPT_WAY_CHUNKED);
    cost.add_tokens(16);
    cost.add_seconds(1);
    cost.add_slack_seconds(0);
    return &cost;
  };
  add();
  add()->set_way(v1::PROMPT_WAY_UNSPECIFIED);
  add()->set_way(static_cast<v1::PromptWay>(9));
  add()->add_seconds(2);
  add()->set_seconds(0, std::nan(""));
  EXPECT_EQ(FromProto(response).size(), 1u);
  for (size_t i = 0; i < 2 * kMaxPromptCosts; ++i) add();
  EXPECT_EQ(FromProto(response).size(), kMaxPromptCosts);
}

TEST(ConvertTest, ALeaseKeepsItsPagesInOrder) {
  const KvLease lease = FromProto(ToProto(KvLease{.pool = "pool", .slot = 3, .id = 5, .pages = {4, 1, 2}}));
  EXPECT_EQ(lease.pool, "pool");
  EXPECT_EQ(lease.slot, 3u);
  EXPECT_EQ(lease.id, 5u);
  EXPECT_THAT(lease.pages, testing::ElementsAre(4, 1, 2));
}

}  // namespace
}  // namespace moestro
