#include "services/router/request/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "services/router/request/request_bounds.h"
#include "tests/services/router/tiny_tokenizer.h"

namespace moestro::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kBos;
using testing::kHi;

ServedModel Model() {
  ServedModel model;
  model.fingerprint = "weights";
  model.max_context_tokens = 20;
  model.stop_ids = {5, 3};
  model.default_temperature = 0.6f;
  model.default_top_p = 0.95f;
  model.default_top_k = 7;
  model.text = *ModelText::Create({.tokenizer_json = testing::TinyTokenizerJson(),
                                   .chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}",
                                   .bos_token = "<|bos|>",
                                   .eos_token = "",
                                   .add_bos_token = true});
  return model;
}

absl::StatusOr<GenerateJob> Prepare(const GenerateInput& input, uint32_t default_max_tokens = 8) {
  return PrepareGenerate(input, Model(), {.default_max_tokens = default_max_tokens}, "id", /*seed=*/99);
}

GenerateInput Prompt(const char* text = "hi") {
  GenerateInput input;
  input.prompt = PlainText{text};
  return input;
}

TEST(PrepareTest, FillsInDefaults) {
  const auto job = Prepare(Prompt());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->fingerprint, "weights");
  EXPECT_THAT(job->prompt, ElementsAre(kBos, kHi));
  EXPECT_EQ(job->max_tokens, 8u);
  EXPECT_FLOAT_EQ(job->sampling.temperature, 0.6f);
  EXPECT_FLOAT_EQ(job->sampling.top_p, 0.95f);
  EXPECT_EQ(job->sampling.top_k, 7);
  EXPECT_EQ(job->sampling.seed, 99u);
  EXPECT_THAT(job->stop_ids, ElementsAre(3, 5));
}

TEST(PrepareTest, TheClientsWishesWin) {
  GenerateInput input = Prompt();
  input.temperature = 0;
  input.top_p = 1;
  input.top_k = 0;
  input.seed = 4;
  input.stop_ids = {9, 5};
  input.max_tokens = 18;
  auto job = Prepare(input);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->sampling.temperature, 0);
  EXPECT_EQ(job->sampling.top_p, 1);
  EXPECT_EQ(job->sampling.top_k, 0);
  EXPECT_EQ(job->sampling.seed, 4u);
  EXPECT_EQ(job->max_tokens, 18u);
  EXPECT_THAT(job->stop_ids, ElementsAre(3, 5, 9));
  input.ignore_eos = true;
  job = Prepare(input);
  EXPECT_THAT(job->stop_ids, ElementsAre(5, 9));
}

TEST(PrepareTest, OptionsAreOffUntilAClientSetsThem) {
  const Sampling off = Prepare(Prompt())->sampling;
  EXPECT_EQ(off.min_p, 0);
  EXPECT_EQ(off.presence_penalty, 0);
  EXPECT_EQ(off.frequency_penalty, 0);
  EXPECT_EQ(off.repetition_penalty, 1);
  EXPECT_TRUE(off.logit_bias.empty());
  EXPECT_EQ(off.top_logprobs, 0u);
  GenerateInput input = Prompt();
  input.min_p = 0.1f;
  input.presence_penalty = -2;
  input.frequency_penalty = 2;
  input.repetition_penalty = 1.1f;
  input.logit_bias = {{9, -100.0f}, {kHi, 100.0f}, {3, 0.5f}};
  input.top_logprobs = 20;
  input.stop = {"b", "a"};
  input.keep_special_tokens = true;
  const auto job = Prepare(input);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->sampling.min_p, 0.1f);
  EXPECT_EQ(job->sampling.presence_penalty, -2);
  EXPECT_EQ(job->sampling.frequency_penalty, 2);
  EXPECT_EQ(job->sampling.repetition_penalty, 1.1f);
  EXPECT_THAT(job->sampling.logit_bias, ElementsAre(std::pair(3, 0.5f), std::pair(9, -100.0f), std::pair(kHi, 100.0f)));
  EXPECT_EQ(job->sampling.top_logprobs, 20u);
  EXPECT_THAT(job->stop, ElementsAre("b", "a"));
  EXPECT_TRUE(job->keep_special_tokens);
}

TEST(PrepareTest, ThePublishersDefaultsAreThoseOfARequest) {
  ServedModel model = Model();
  model.default_min_p = 0.05f;
  model.default_repetition_penalty = 1.05f;
  GenerateInput input = Prompt();
  const auto sampling = [&] { return PrepareGenerate(input, model, {}, "id", /*seed=*/99)->sampling; };
  EXPECT_EQ(sampling().min_p, 0.05f);
  EXPECT_EQ(sampling().repetition_penalty, 1.05f);
  input.min_p = 0;
  input.repetition_penalty = 1;
  EXPECT_EQ(sampling().min_p, 0);
  EXPECT_EQ(sampling().repetition_penalty, 1);
}

TEST(PrepareTest, ATopPOfNothingLeavesTheLikeliestToken) {
  GenerateInput input = Prompt();
  input.temperature = 1.5f;
  input.top_p = 0;
  EXPECT_EQ(Prepare(input)->sampling.temperature, 0);
  EXPECT_EQ(Prepare(input)->sampling.top_p, 1);
}

TEST(PrepareTest, NamesOfRequestsAreFitForALog) {
  const ServedModel model = Model();
  EXPECT_TRUE(CheckRequestId("", model).ok());
  EXPECT_TRUE(CheckRequestId("chatcmpl-A.9:z_", model).ok());
  EXPECT_TRUE(CheckRequestId(std::string(64, 'a'), model).ok());
  for (const std::string id : {"a b", "a\nb", "a/b", "\xC3\xA4", "a]"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckRequestId(id, model))) << id;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(CheckRequestId(std::string(65, 'a'), model)));
}

TEST(PrepareTest, TheModelsOwnTemperatureMayBeHigherThanAClients) {
  ServedModel model = Model();
  model.default_temperature = 100;
  GenerateInput input = Prompt();
  const auto job = PrepareGenerate(input, model, {.default_max_tokens = 8}, "id", /*seed=*/99);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->sampling.temperature, 100);
  input.temperature = 100;
  EXPECT_TRUE(absl::IsInvalidArgument(PrepareGenerate(input, model, {}, "id", /*seed=*/99).status()));
}

TEST(PrepareTest, NoMaxTokensMeansTheOperatorsOrTheCheckpointsOrWhatTheContextLeaves) {
  ServedModel model = Model();
  PrepareLimits limits;
  const auto most = [&] { return PrepareGenerate(Prompt(), model, limits, "id", /*seed=*/99)->max_tokens; };
  EXPECT_EQ(DefaultMaxTokens(model, limits), 0u);
  EXPECT_EQ(most(), 18u);
  limits.tenant.max_tokens = 11;
  EXPECT_EQ(most(), 11u);
  model.default_max_tokens = 9;
  EXPECT_EQ(DefaultMaxTokens(model, limits), 9u);
  EXPECT_EQ(most(), 9u);
  limits.default_max_tokens = 10;
  EXPECT_EQ(most(), 10u);
  model.default_max_tokens = 0;
  limits = {.default_max_tokens = 1024};
  EXPECT_EQ(most(), 18u);
}

TEST(PrepareTest, EveryFieldIsCheckedAndNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<const char*, std::function<void(GenerateInput&)>> cases[] = {
      {"temperature", [](auto& in) { in.temperature = -0.1f; }},
      {"temperature", [](auto& in) { in.temperature = 2.1f; }},
      {"temperature", [&](auto& in) { in.temperature = nan; }},
      {"temperature", [](auto& in) { in.temperature = INFINITY; }},
      {"top_p", [](auto& in) { in.top_p = -0.1f; }},
      {"top_p", [](auto& in) { in.top_p = 1.1f; }},
      {"top_p", [&](auto& in) { in.top_p = nan; }},
      {"top_k", [](auto& in) { in.top_k = -1; }},
      {"min_p: must be 0 to 1", [](auto& in) { in.min_p = 1.1f; }},
      {"min_p", [](auto& in) { in.min_p = -0.1f; }},
      {"min_p", [&](auto& in) { in.min_p = nan; }},
      {"presence_penalty: must be -2 to 2", [](auto& in) { in.presence_penalty = 2.1f; }},
      {"presence_penalty", [&](auto& in) { in.presence_penalty = nan; }},
      {"frequency_penalty: must be -2 to 2", [](auto& in) { in.frequency_penalty = -2.1f; }},
      {"frequency_penalty", [&](auto& in) { in.frequency_penalty = nan; }},
      {"repetition_penalty: must be 0.01 to 10", [](auto& in) { in.repetition_penalty = 0; }},
      {"repetition_penalty", [](auto& in) { in.repetition_penalty = 10.1f; }},
      {"repetition_penalty", [&](auto& in) { in.repetition_penalty = nan; }},
      {"logit_bias: must be -100 to 100",
       [](auto& in) {
         in.logit_bias = {{1, 100.5f}};
       }},
      {"logit_bias",
       [&](auto& in) {
         in.logit_bias = {{1, nan}, {2, 0.0f}, {1, nan}};
       }},
      {"logit_bias: 263 is not a token id",
       [](auto& in) {
         in.logit_bias = {{testing::kTokenCount, 1.0f}};
       }},
      {"logit_bias: token 7 has more than one",
       [](auto& in) {
         in.logit_bias = {{7, 1.0f}, {2, 0.0f}, {7, 3.0f}};
       }},
      {"top_logprobs: must be 0 to 20", [](auto& in) { in.top_logprobs = 21; }},
      {"constraint.text: is empty", [](auto& in) { in.constraint.kind = Constraint::Kind::kJsonSchema; }},
      {"constraint.text: must be empty",
       [](auto& in) {
         in.constraint = {Constraint::Kind::kJsonObject, "{}"};
       }},
      {"constraint.text: must be empty", [](auto& in) { in.constraint.text = "x"; }},
      {"constraint.text: has more than 262144 bytes",
       [](auto& in) {
         in.constraint = {Constraint::Kind::kRegex, std::string(262145, 'x')};
       }},
      {"json_schema: is empty",
       [](auto& in) {
         in.constraint.kind = Constraint::Kind::kJsonSchema;
         in.constraint_field = "json_schema";
       }},
      {"constraint.kind", [](auto& in) { in.constraint.kind = static_cast<Constraint::Kind>(77); }},
      {"stop: a text is empty",
       [](auto& in) {
         in.stop = {"x", ""};
       }},
      {"stop_ids", [](auto& in) { in.stop_ids = {-1}; }},
      {"stop_ids", [](auto& in) { in.stop_ids = {testing::kTokenCount}; }},
      {"token_ids", [](auto& in) { in.prompt = TokenList{testing::kTokenCount}; }},
      {"input", [](auto& in) { in.prompt = TokenList{}; }},
      {"input", [](auto& in) { in.prompt = std::monostate(); }},
      {"prompt", [](auto& in) { in.prompt = PlainText{""}; }},
      {"chat.messages", [](auto& in) { in.prompt = text::Chat{}; }},
      {"input", [](auto& in) { in.prompt = TokenList(20, 1); }},
      {"token_ids", [](auto& in) { in.prompt = TokenList(21, 1); }},
  };
  for (const auto& [field, spoil] : cases) {
    GenerateInput input = Prompt();
    spoil(input);
    const absl::Status status = Prepare(input).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << field << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  }
}

std::string Refusal(const absl::Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

// Tokens are counted up to 256 Ki above the context, and the longest one is "<|assistant|>".
constexpr size_t kMostCounted = 20 + (256 << 10);
constexpr size_t kMostBytes = kMostCounted * 13;

TEST(PrepareTest, TextThatCannotFitIsCountedWithinABound) {
  const ServedModel model = Model();
  const auto over = [&](const std::string& text) {
    const absl::Status status = Prepare(Prompt(text.c_str())).status();
    EXPECT_TRUE(absl::IsInvalidArgument(PrepareScore({.text = PlainText{text}, .top = 0}, model, {}, "id").status()));
    return std::pair(Refusal(status), OverContextOf(status).value_or(OverContext{}));
  };
  auto [words, numbers] = over(std::string(20, 'h'));  // and BOS
  EXPECT_EQ(words, "prompt: has 21 tokens, and the model's context has 20");
  EXPECT_TRUE(numbers.is_exact && numbers.tokens == 21 && numbers.context == 20);
  std::tie(words, numbers) = over(std::string(100'000, 'h'));
  EXPECT_TRUE(numbers.is_exact && numbers.tokens == 100'001) << words;
  // A word that is too long to be merged is too long for the context, too.
  std::tie(words, numbers) = over(std::string(300'000, 'h'));
  EXPECT_EQ(words, "prompt: has at least 21 tokens, and the model's context has 20");
  std::tie(words, numbers) = over(std::string(kMostBytes, 'h') + '\xFF');  // would be found not to be UTF-8
  EXPECT_EQ(words, "prompt: has more than 3408132 bytes, the most that the model's context of 20 tokens can hold");
  EXPECT_TRUE(!numbers.is_exact && numbers.tokens == kMostCounted + 1);
}

TEST(PrepareTest, APromptThatFillsTheContextLeavesNoRoom) {
  GenerateInput input;
  input.prompt = TokenList(20, kHi);
  const absl::Status full = Prepare(input).status();
  EXPECT_EQ(Refusal(full), "input: has 20 tokens, and the model's context has 20: none can be generated");
  EXPECT_EQ(OverContextOf(full)->tokens, 20u);
  input.prompt = TokenList(19, kHi);
  input.max_tokens = 32000;
  EXPECT_EQ(Prepare(input)->max_tokens, 1u);
  EXPECT_EQ(OverContextOf(absl::InvalidArgumentError("prompt: is empty")), std::nullopt);
}

// Agents ask for tens of thousands of tokens, whatever the prompt.
TEST(PrepareTest, MaxTokensIsABound) {
  const auto prepare = [](uint32_t asked, const access::TenantLimits& limits, size_t prompt = 5) {
    GenerateInput input;
    input.prompt = TokenList(prompt, kHi);
    input.max_tokens = asked;
    return PrepareGenerate(input, Model(), {.default_max_tokens = 8, .tenant = limits}, "id", /*seed=*/99);
  };
  for (const uint32_t asked : {16u, 32000u, UINT32_MAX}) {
    EXPECT_EQ(prepare(asked, {})->max_tokens, 15u) << asked;
    EXPECT_EQ(prepare(asked, {.max_tokens = 4})->max_tokens, 4u) << asked;
    EXPECT_EQ(prepare(asked, {.context = 12})->max_tokens, 7u) << asked;
    EXPECT_EQ(prepare(asked, {.max_tokens = 9, .context = 12})->max_tokens, 7u) << asked;
  }
  EXPECT_EQ(prepare(3, {.max_tokens = 4, .context = 12})->max_tokens, 3u);
  EXPECT_EQ(prepare(0, {})->max_tokens, 8u);
  const absl::Status full = prepare(3, {.context = 12}, /*prompt=*/12).status();
  EXPECT_EQ(Refusal(full), "input: has 12 tokens, and the API key allows 12 (context): none can be generated");
  EXPECT_TRUE(OverContextOf(full)->is_of_key);
}

TEST(PrepareTest, TextFillsTheContextWithItsBos) {
  const ServedModel model = Model();
  EXPECT_EQ(EncodeText(std::string(19, 'h'), /*plain=*/false, model, "text")->size(), 20u);
  EXPECT_THAT(Refusal(EncodeText(std::string(20, 'h'), /*plain=*/false, model, "text").status()),
              HasSubstr("text: has 21 tokens"));
  EXPECT_EQ(EncodeText(std::string(20, 'h'), /*plain=*/true, model, "text")->size(), 20u);
}

TEST(PrepareTest, ChatThatCannotFitIsNotRendered) {
  const auto refusal = [](std::vector<text::ChatMessage> messages) {
    GenerateInput input;
    input.prompt = text::Chat{.messages = std::move(messages)};
    return Refusal(Prepare(input).status());
  };
  const text::ChatMessage half{"user", std::string(kMostBytes / 2, 'h')};
  EXPECT_THAT(refusal({half, half}), HasSubstr("chat: has at least 262165 tokens"));
  EXPECT_EQ(
      refusal({half, half, {"user", "\xFF"}}),
      "chat.messages.content: has more than 3408132 bytes, the most that the model's context of 20 tokens can hold");
  EXPECT_THAT(refusal(std::vector<text::ChatMessage>(20, {"user", "hh"})), HasSubstr("chat: has 40 tokens"));
  EXPECT_EQ(refusal(std::vector<text::ChatMessage>(21, {"user", "\xFF"})),
            "chat.messages: has more than 20 messages, the most that the model's context of 20 tokens can hold");
}

// Every text of a chat counts, whether the template writes it or not.
TEST(PrepareTest, AllTextsOfAChatAreBoundedTogether) {
  const auto refusal = [](const std::function<void(text::Chat&, size_t)>& fill, size_t bytes) {
    text::Chat chat{
        .messages = {
            {.role = "assistant", .content = std::string(kMostBytes - 160, 'h'), .tool_calls = {{.name = "f"}}}}};
    fill(chat, bytes);
    return std::string(EncodeChat(chat, Model()).status().message());
  };
  const std::string over = "chat: has more than 3408132 bytes, the most that the model's context of 20 tokens can hold";
  for (const std::function<void(text::Chat&, size_t)>&fill : std::vector<std::function<void(text::Chat&, size_t)>>{
           [](auto&chat, size_t n) { chat.messages[0].reasoning_content = std::string(n, 'x'); },
           [](auto&chat, size_t n) { chat.messages[0].name = std::string(n, 'x'); },
           [](auto&chat, size_t n) { chat.messages[0].tool_call_id = std::string(n, 'x'); },
           [](auto&chat, size_t n) { chat.messages[0].tool_calls[0].id = std::string(n, 'x'); },
           [](auto&chat, size_t n) { chat.messages[0].tool_calls[0].name += std::string(n, 'x'); },
           [](auto&chat, size_t n) { chat.messages[0].tool_calls[0].arguments = std::string(n, 'x'); },
           [](auto&chat, size_t n) { chat.tools = std::string(n, 'x'); },
           [](auto&chat, size_t n) { chat.template_flags = std::string(n, 'x'); },
       }) {
    EXPECT_NE(refusal(fill, 159), over);
    EXPECT_EQ(refusal(fill, 160), over);
  }
  text::Chat chat{.messages = {{.role = "assistant", .content = ""}}};
  chat.messages[0].tool_calls.resize(21);
  EXPECT_EQ(
      Refusal(EncodeChat(chat, Model()).status()),
      "chat.messages.tool_calls: has more than 20 calls, the most that the model's context of 20 tokens can hold");
}

TEST(PrepareTest, ListsAreBounded) {
  GenerateInput input = Prompt();
  input.stop_ids.assign(256, 1);
  input.cache_scope = std::string(64, 's');
  const auto job = Prepare(input);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->cache_scope, std::string(64, 's'));
  input.stop_ids.push_back(1);
  EXPECT_EQ(Refusal(Prepare(input).status()), "stop_ids: has more than 256 ids");
  input = Prompt();
  input.cache_scope = std::string(65, 's');
  EXPECT_EQ(Refusal(Prepare(input).status()), "cache_scope: has more than 64 bytes");
  input = Prompt();
  input.stop.assign(16, std::string(256, 'x'));
  for (int32_t id = 0; id < testing::kTokenCount; ++id) input.logit_bias.emplace_back(id, 1.0f);
  EXPECT_TRUE(Prepare(input).ok()) << Prepare(input).status();
  input.logit_bias.resize(1025);
  EXPECT_EQ(Refusal(Prepare(input).status()), "logit_bias: has more than 1024 token ids");
  input.logit_bias.clear();
  input.stop.push_back("x");
  EXPECT_EQ(Refusal(Prepare(input).status()), "stop: has more than 16 texts");
  input.stop = {std::string(257, 'x')};
  EXPECT_EQ(Refusal(Prepare(input).status()), "stop: has more than 256 bytes in one text");
  input = Prompt();
  input.prompt = TokenList(21, -1);
  EXPECT_EQ(Refusal(Prepare(input).status()), "token_ids.ids: has 21 tokens, and the model's context has 20");
}

TEST(PrepareTest, DecodedTextIsBounded) {
  ServedModel model = Model();
  EXPECT_EQ(*DecodeIds(std::vector<int32_t>{kBos, kHi, 0xC3}, /*keep_special_tokens=*/true, model), "<|bos|>hi\uFFFD");
  EXPECT_EQ(*DecodeIds(std::vector<int32_t>{kBos, kHi}, /*keep_special_tokens=*/false, model), "hi");
  EXPECT_THAT(Refusal(DecodeIds(std::vector<int32_t>(21, kHi), true, model).status()),
              HasSubstr("ids: has more than 20"));
  model.max_context_tokens = 10 << 20;
  EXPECT_EQ(DecodeIds(std::vector<int32_t>(2 << 20, 'x'), true, model)->size(), 2u << 20);
  EXPECT_THAT(Refusal(DecodeIds(std::vector<int32_t>(2 << 20, kHi), true, model).status()),
              HasSubstr("ids: their text has more than"));
}

TEST(PrepareTest, WorkOnATextEndsWithTheClient) {
  ServedModel model = Model();
  model.max_context_tokens = 1 << 20;
  const CancelCheck gone = [] { return absl::CancelledError("gone"); };
  EXPECT_TRUE(absl::IsCancelled(EncodeText("hi", true, model, "text", gone).status()));
  EXPECT_TRUE(absl::IsCancelled(EncodeChat({.messages = {{"user", "hi"}}}, model, gone).status()));
  EXPECT_TRUE(absl::IsCancelled(DecodeIds(std::vector<int32_t>{kHi}, true, model, gone).status()));
  int looks = 0;
  const CancelCheck later = [&] { return ++looks < 3 ? absl::OkStatus() : absl::CancelledError("gone"); };
  EXPECT_TRUE(absl::IsCancelled(DecodeIds(std::vector<int32_t>(100000, kHi), true, model, later).status()));
  EXPECT_EQ(looks, 3);
}

// The model's context is 20 tokens.
TEST(PrepareTest, AKeyBoundsTokens) {
  const ServedModel model = Model();
  const auto prepare = [&](const PrepareLimits& limits, size_t prompt, uint32_t max_tokens) {
    GenerateInput input;
    input.prompt = TokenList(prompt, 1);
    input.max_tokens = max_tokens;
    return PrepareGenerate(input, model, limits, "id", 1);
  };
  const PrepareLimits few{.default_max_tokens = 15, .tenant = {.max_tokens = 4}};
  EXPECT_EQ(prepare(few, 2, 0)->max_tokens, 4u);
  EXPECT_EQ(prepare(few, 2, 4)->max_tokens, 4u);
  EXPECT_EQ(prepare(few, 2, 5)->max_tokens, 4u);
  const PrepareLimits small{.default_max_tokens = 15, .tenant = {.context = 10}};
  EXPECT_EQ(prepare(small, 2, 0)->max_tokens, 8u);
  EXPECT_EQ(prepare(small, 2, 8)->max_tokens, 8u);
  EXPECT_EQ(prepare(small, 2, 9)->max_tokens, 8u);
  EXPECT_EQ(prepare(small, 9, 0)->max_tokens, 1u);
  EXPECT_THAT(Refusal(prepare(small, 10, 0).status()), HasSubstr("the API key allows 10 (context)"));
  EXPECT_TRUE(PrepareScore({.text = TokenList(10, 1), .top = 0}, model, small, "id").ok());
  EXPECT_THAT(Refusal(PrepareScore({.text = TokenList(11, 1), .top = 0}, model, small, "id").status()),
              HasSubstr("the API key allows 10 (context)"));
}

TEST(PrepareTest, DecodeScoresNothing) {
  const ServedModel model = Model();
  const auto score = [&](PromptWay way) {
    return PrepareScore({.text = TokenList(3, 1), .top = 0, .way = way}, model, {}, "id");
  };
  EXPECT_THAT(Refusal(score(PromptWay::kChunked).status()), HasSubstr("way"));
  for (const PromptWay way : {PromptWay::kInPlace, PromptWay::kStreamed}) EXPECT_EQ(score(way)->way, way);
}

TEST(PrepareTest, ScoreFillsTheContext) {
  const ServedModel model = Model();
  const auto job = PrepareScore({.text = TokenList(20, 1), .top = 100}, model, {}, "id");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->fingerprint, "weights");
  EXPECT_TRUE(absl::IsInvalidArgument(PrepareScore({.text = TokenList(21, 1), .top = 0}, model, {}, "id").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PrepareScore({.text = TokenList(2, 1), .top = 101}, model, {}, "id").status()));
}

}  // namespace
}  // namespace moestro::router
