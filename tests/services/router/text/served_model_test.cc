#include "services/router/text/served_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelBoard::ModelPtr LoadedModel(const std::string& fingerprint) {
  auto model = std::make_shared<ServedModel>();
  model->fingerprint = fingerprint;
  return model;
}

TEST(ModelBoardTest, SaysWhatItWaitsFor) {
  ModelBoard board;
  board.SetProblem("weight store: connection refused");
  EXPECT_THAT(std::string(board.Described().status().message()), HasSubstr("connection refused"));
  board.SetModel(LoadedModel("a"));
  EXPECT_TRUE(board.Described().ok());
  board.SetProgress(42, 100);
  EXPECT_TRUE(absl::IsUnavailable(board.Ready().status()));
  EXPECT_EQ(board.Ready().status().message(), "model is loading: 42 %");
  board.SetReady();
  EXPECT_TRUE(board.Ready().ok());
}

TEST(ModelBoardTest, AStoreThatGoesAwayChangesNothing) {
  ModelBoard board;
  board.SetModel(LoadedModel("a"));
  board.SetReady();
  board.SetProblem("gone");
  board.SetProgress(0, 100);
  EXPECT_TRUE(board.Ready().ok());
}

TEST(ModelBoardTest, AnotherModelMustLoadFirst) {
  ModelBoard board;
  board.SetModel(LoadedModel("a"));
  board.SetReady();
  const auto held = *board.Ready();
  board.SetModel(LoadedModel("b"));
  EXPECT_FALSE(board.Ready().ok());
  EXPECT_EQ(held->fingerprint, "a");
  EXPECT_EQ(board.fingerprint(), "b");
}

TEST(ModelBoardTest, TheContextIsWhatThePoolCanHold) {
  const auto with_context = [](uint32_t tokens) {
    auto model = std::make_shared<ServedModel>();
    model->max_context_tokens = tokens;
    return model;
  };
  ModelBoard board;
  const auto context = [&] { return (*board.Described())->max_context_tokens; };
  board.SetModel(with_context(4096));
  board.SetReady();
  EXPECT_EQ(context(), 4096u);
  const auto held = *board.Ready();
  board.SetKvTokens(1024);
  EXPECT_EQ(context(), 1024u);
  EXPECT_TRUE(board.Ready().ok());
  EXPECT_EQ(held->max_context_tokens, 4096u) << "a request keeps the model it began with";
  board.SetKvTokens(uint64_t{1} << 40);
  EXPECT_EQ(context(), 4096u);
  board.SetKvTokens(2048);
  board.SetModel(with_context(8192));
  EXPECT_EQ(context(), 2048u);
  board.SetModel(with_context(512));
  EXPECT_EQ(context(), 512u);
}

TEST(ModelBoardTest, EveryModelHasTheNodesAliases) {
  ModelBoard board({.aliases = {"gpt-4o", "claude", "third"}, .strict = true});
  for (const char* name : {"first", "second"}) {
    auto model = std::make_shared<ServedModel>();
    model->name = name;
    board.SetModel(std::move(model));
    EXPECT_THAT(NamesOf(**board.Described()), ElementsAre(name, "gpt-4o", "claude", "third"));
    EXPECT_TRUE((*board.Described())->names.strict);
  }
  auto third = std::make_shared<ServedModel>();
  third->name = "third";
  board.SetModel(std::move(third));
  EXPECT_THAT(NamesOf(**board.Described()), ElementsAre("third", "gpt-4o", "claude"));
}

TEST(ModelBoardTest, NothingIsReadyWithoutAModel) {
  ModelBoard board;
  board.SetReady();
  EXPECT_FALSE(board.Ready().ok());
}

}  // namespace
}  // namespace moestro::router
