#include "services/router/http/openai_completions.h"

#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/json/json.h"
#include "services/router/http/api_fields.h"
#include "services/router/http/choices.h"
#include "services/router/http/errors.h"
#include "services/router/http/frames.h"
#include "services/router/http/logprobs.h"
#include "services/router/http/request_fields.h"

namespace moestro::router {
namespace {

using nlohmann::json;

struct CompletionRequest {
  std::string model;
  std::vector<GenerateInput> choices;  // n of the first prompt, then n of the second, and so on
  size_t n = 1;
  StreamFields stream;
  bool echo = false;                           // the answer begins with the prompt
  bool generates = true;                       // false: max_tokens is 0, for the prompt's log-probabilities
  std::optional<uint32_t> top = std::nullopt;  // alternatives of each token, if log-probabilities are wanted
  std::optional<PromptWay> way = std::nullopt;
};

// A text, a list of texts, token ids, or a list of lists of token ids.
std::vector<PromptInput> ReadPrompts(text::JsonFields& fields) {
  if (!fields.Has("prompt")) {
    fields.Fail("prompt", "missing");
    return {};
  }
  const json& prompt = fields.object()["prompt"];
  if (prompt.is_string()) return {PlainText{.text = prompt.get<std::string>(), .rendered = true}};
  if (!prompt.is_array() || prompt.empty()) {
    fields.Fail("prompt", text::Describe(prompt) + " is not a text, a list of texts, or lists of token ids");
    return {};
  }
  if (prompt[0].is_number()) return {IdsOf(prompt, "prompt", fields)};
  if (prompt.size() > kMostPrompts) {
    fields.Fail("prompt", absl::StrCat("has more than ", kMostPrompts, " prompts"));
    return {};
  }
  std::vector<PromptInput> prompts;
  for (const json& one : prompt) {
    if (one.is_string()) {
      prompts.push_back(PlainText{.text = one.get<std::string>(), .rendered = true});
    } else if (one.is_array()) {
      prompts.push_back(IdsOf(one, "prompt", fields));
    } else {
      fields.Fail("prompt", text::Describe(one) + " is neither a text nor a list of token ids");
    }
  }
  return prompts;
}

absl::StatusOr<CompletionRequest> ReadRequest(std::string_view body, const ServedModel& model) {
  MOE_ASSIGN_OR_RETURN(const json parsed, ParseRequest(body, model));
  absl::Status status;
  text::JsonFields fields(parsed, "", &status);
  CompletionRequest request{.model = fields.StringOr("model", ""), .choices = {}, .stream = ReadStreamFields(fields)};
  RefuseFields(Api::kCompletions, fields);
  request.echo = fields.BoolOr("echo", false);
  if (fields.Has("logprobs")) request.top = static_cast<uint32_t>(fields.IntOr("logprobs", 0, 0, kMostAlternatives));
  // Evaluations ask for nothing but the prompt's log-probabilities.
  request.generates = !(request.echo && request.top && parsed.contains("max_tokens") && parsed["max_tokens"] == 0);
  request.way = ReadWay(fields);
  GenerateInput input;
  if (request.generates) input = ReadGenerateFields(fields, body);
  input.top_logprobs = request.top.value_or(0);
  request.n = static_cast<size_t>(fields.IntOr("n", 1, 1, kMostChoices));
  // The best of more than n would have to be found by their log-probabilities.
  if (fields.IntOr("best_of", static_cast<int64_t>(request.n), 1, INT32_MAX) != static_cast<int64_t>(request.n)) {
    fields.Unsupported("best_of", "must be n: ask for n answers with logprobs, and take the best");
  }
  std::vector<PromptInput> prompts = ReadPrompts(fields);
  if (request.echo && request.top && request.stream.stream) {
    fields.Unsupported("echo", "with logprobs is not available in a stream: set stream to false");
  }
  if (prompts.size() * request.n > kMostPrompts) {
    fields.Fail("n", absl::StrCat("all prompts have more than ", kMostPrompts, " choices together"));
  }
  MOE_RETURN_IF_ERROR(status);
  MOE_RETURN_IF_ERROR(CheckModelName(request.model, model));
  for (PromptInput& prompt : prompts) {
    GenerateInput one = input;
    one.prompt = std::move(prompt);
    for (GenerateInput& choice : Repeat(std::move(one), request.n)) request.choices.push_back(std::move(choice));
  }
  return request;
}

// The text of a prompt.
std::string PromptText(const PromptInput& prompt, const ModelText& text) {
  if (const auto* plain = std::get_if<PlainText>(&prompt)) return plain->text;
  return text.Decode(std::get<TokenList>(prompt), /*keep_special_tokens=*/true);
}

class CompletionAnswer : public Answer {
 public:
  CompletionAnswer(const HttpApi& api, const CompletionRequest& request, ModelBoard::ModelPtr model, Response& response)
      : request_(request),
        model_(std::move(model)),
        response_(response),
        id_("cmpl-" + api.runner.NewRequestId()),
        logprobs_(request.choices.size(), CompletionLogprobs(*model_->text, request.top.value_or(0) > 0)) {}

  const std::string& id() const { return id_; }

  absl::Status Started(size_t choice, uint32_t prompt_tokens, const AdmissionNotice& notice) override {
    if (prompts_.insert(choice / request_.n).second) usage_.AddPrompt(prompt_tokens, notice.cached_tokens);
    return absl::OkStatus();
  }
  absl::Status Tokens(size_t choice, const std::vector<Token>& tokens, const std::string& text) override {
    usage_.AddGenerated(tokens.size());
    if (request_.top) {
      for (const Token& token : tokens) logprobs_[choice].Add(token);
    }
    return Add(choice, text);
  }

 protected:
  virtual absl::Status Add(size_t choice, const std::string& text) = 0;

  OrderedJson Envelope(OrderedJson choices) const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", model_->name},
            {"system_fingerprint", SystemFingerprint(*model_)},
            {"choices", std::move(choices)}};
  }
  OrderedJson Choice(size_t choice, const std::string& text, OrderedJson finish_reason) {
    return {{"index", choice},
            {"text", text},
            {"logprobs", request_.top ? logprobs_[choice].Take() : OrderedJson(nullptr)},
            {"finish_reason", std::move(finish_reason)}};
  }

  const CompletionRequest& request_;
  const ModelBoard::ModelPtr model_;
  Response& response_;
  const std::string id_;
  const int64_t created_ = UnixSeconds();
  UsageSum usage_;
  std::vector<CompletionLogprobs> logprobs_;

 private:
  std::set<size_t> prompts_;  // that are counted
};

class CompletionStream final : public CompletionAnswer {
 public:
  CompletionStream(const HttpApi& api, const CompletionRequest& request, ModelBoard::ModelPtr model, Response& response)
      : CompletionAnswer(api, request, std::move(model), response), api_(api) {}

  absl::Status Waiting() override { return Begin(); }
  absl::Status Started(size_t choice, uint32_t prompt_tokens, const AdmissionNotice& notice) override {
    MOE_RETURN_IF_ERROR(CompletionAnswer::Started(choice, prompt_tokens, notice));
    MOE_RETURN_IF_ERROR(Begin());
    return request_.echo ? Add(choice, PromptText(request_.choices[choice].prompt, *model_->text)) : absl::OkStatus();
  }
  absl::Status Prefill(size_t choice, const PrefillProgress& progress) override {
    if (!request_.stream.progress) return absl::OkStatus();
    OrderedJson frame = Frame(Choice(choice, "", nullptr));
    frame["prompt_progress"] = ProgressJson(progress);
    return Write(frame);
  }
  absl::Status Finished(size_t choice, const RequestSummary& summary) override {
    OrderedJson frame = Frame(Choice(choice, "", FinishWord(summary.reason)));
    frame["timings"] = Timings(summary);
    return Write(frame);
  }
  absl::Status Finish() {
    if (request_.stream.include_usage) {
      OrderedJson last = Envelope(OrderedJson::array());
      last["usage"] = usage_.ToJson();
      MOE_RETURN_IF_ERROR(Write(last));
    }
    return response_.Write(kSseDone);
  }

 private:
  absl::Status Add(size_t choice, const std::string& text) override {
    return text.empty() && !request_.top ? absl::OkStatus() : Write(Frame(Choice(choice, text, nullptr)));
  }
  absl::Status Begin() {
    if (std::exchange(begun_, true)) return absl::OkStatus();
    return BeginSse(api_.keep_alive, request_.stream, response_);
  }
  OrderedJson Frame(OrderedJson choice) const {
    OrderedJson frame = Envelope(OrderedJson::array({std::move(choice)}));
    if (request_.stream.include_usage) frame["usage"] = nullptr;
    if (request_.stream.continuous_usage) frame["usage"] = usage_.ToJson();
    return frame;
  }
  absl::Status Write(const OrderedJson& frame) { return response_.Write(SseFrame(Dump(frame))); }

  const HttpApi& api_;
  bool begun_ = false;
};

class CompletionDocument final : public CompletionAnswer {
 public:
  CompletionDocument(const HttpApi& api, const CompletionRequest& request, ModelBoard::ModelPtr model,
                     Response& response)
      : CompletionAnswer(api, request, std::move(model), response),
        api_(api),
        texts_(request.choices.size()),
        summaries_(request.choices.size()) {}

  absl::Status Waiting() override { return absl::OkStatus(); }
  absl::Status Prefill(size_t, const PrefillProgress&) override { return absl::OkStatus(); }
  absl::Status Finished(size_t choice, const RequestSummary& summary) override {
    summaries_[choice] = summary;
    return absl::OkStatus();
  }

  // Begins the texts with the prompts, and scores these if log-probabilities are wanted.
  absl::Status Echo(ClientCall& call) {
    for (size_t first = 0; first < texts_.size(); first += request_.n) {
      const PromptInput& prompt = request_.choices[first].prompt;
      std::vector<ScoredToken> scores;
      if (request_.top) MOE_RETURN_IF_ERROR(Score(call, prompt, scores));
      if (!request_.generates) usage_.AddPrompt(static_cast<uint32_t>(scores.size()), 0);
      for (size_t choice = first; choice < first + request_.n; ++choice) {
        texts_[choice] = PromptText(prompt, *model_->text);
        const bool spells_special = std::holds_alternative<TokenList>(prompt);  // as PromptText
        for (const ScoredToken& score : scores) logprobs_[choice].Add(score, spells_special);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    OrderedJson choices = OrderedJson::array();
    for (size_t i = 0; i < texts_.size(); ++i) {
      choices.push_back(Choice(i, texts_[i], FinishWord(summaries_[i].reason)));
    }
    OrderedJson document = Envelope(std::move(choices));
    document["usage"] = usage_.ToJson();
    if (request_.generates) document["timings"] = Timings(summaries_[0]);
    return response_.SendJson(200, Dump(document));
  }

 private:
  absl::Status Add(size_t choice, const std::string& text) override {
    texts_[choice] += text;
    return absl::OkStatus();
  }
  absl::Status Score(ClientCall& call, const PromptInput& prompt, std::vector<ScoredToken>& scores) {
    return WithPeers(api_, call, [&](const CallPeers& peers) {
      return api_.runner.Score(
          [&](const ServedModel&) -> absl::StatusOr<ScoreInput> {
            return ScoreInput{.text = prompt, .top = *request_.top, .way = request_.way};
          },
          peers,
          [&](std::vector<ScoredToken> some) {
            scores.insert(scores.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
            return absl::OkStatus();
          });
    });
  }

  const HttpApi& api_;
  std::vector<std::string> texts_;
  std::vector<RequestSummary> summaries_;
};

}  // namespace

namespace {

absl::Status AnswerCompletions(const HttpApi& api, HttpRequest& http, Response& response) {
  ClientCall& call = response.call();
  const CancelCheck check = [&] { return call.Check(); };
  MOE_ASSIGN_OR_RETURN(const ModelBoard::ModelPtr model, api.board.Ready());
  const auto read = [&](const ServedModel& served, ConstraintCheck& /*constraints*/) {
    return ReadRequest(http.body.text, served);
  };
  MOE_ASSIGN_OR_RETURN(const CompletionRequest request,
                       api.runner.ReadInTurn<CompletionRequest>(read, call.bytes(), check));
  http.body = {};
  if (!request.stream.stream) {
    CompletionDocument document(api, request, model, response);
    if (request.echo) MOE_RETURN_IF_ERROR(document.Echo(call));
    if (request.generates) MOE_RETURN_IF_ERROR(RunChoices(api, response, document.id(), request.choices, document));
    return document.Finish();
  }
  CompletionStream stream(api, request, model, response);
  const absl::Status status = RunChoices(api, response, stream.id(), request.choices, stream);
  if (status.ok()) return stream.Finish();
  if (response.begun()) response.Write(absl::StrCat(SseError(status), kSseDone)).IgnoreError();
  return status;
}

}  // namespace

absl::Status HandleCompletions(const HttpApi& api, HttpRequest& http, Response& response) {
  return InWordsOf(Api::kCompletions, AnswerCompletions(api, http, response));
}

}  // namespace moestro::router
