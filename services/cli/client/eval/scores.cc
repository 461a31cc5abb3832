#include "services/cli/client/eval/scores.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::json;

// `what`: of the tasks, such as "task 'add'".
absl::Status Missing(const std::string& what, const char* field) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has no number '", field, "'; give it what eval --json printed"));
}

}  // namespace

void Scores::Count::operator+=(const Count& other) {
  right += other.right;
  of += other.of;
  expected.sum_logprob += other.expected.sum_logprob;
  expected.tokens += other.expected.tokens;
}

void Scores::Add(const std::string& task, bool right, const Expected& expected) {
  tasks_[task] += Count{.right = right, .of = 1, .expected = expected};
}

Scores::Count Scores::Total() const {
  Count total;
  for (const auto& [task, count] : tasks_) total += count;
  return total;
}

Scores::Count Scores::Of(const std::string& task) const {
  const auto found = tasks_.find(task);
  return found == tasks_.end() ? Count{} : found->second;
}

absl::StatusOr<Scores> Scores::FromJson(const Json& json) {
  const auto tasks = json.is_object() ? json.find("tasks") : json.end();
  if (tasks == json.end() || !tasks->is_object()) {
    return absl::InvalidArgumentError("has no object 'tasks'; give it what eval --json printed");
  }
  Scores scores;
  for (const auto& [task, fields] : tasks->items()) {
    const std::string what = absl::StrCat("task '", task, "'");
    if (!fields.is_object()) return Missing(what, "of");
    const auto whole = [&fields = fields](const char* field) {
      return fields.contains(field) && fields[field].is_number_integer();
    };
    for (const char* field : {"right", "of"}) {
      if (!whole(field)) return Missing(what, field);
    }
    Count& count = scores.tasks_[task];
    count.right = fields["right"].get<int>();
    count.of = fields["of"].get<int>();
    if (!whole("tokens")) continue;
    const auto sum = fields.find("sum_logprob");
    if (sum == fields.end() || !sum->is_number()) return Missing(what, "sum_logprob");
    count.expected = {.sum_logprob = sum->get<double>(), .tokens = fields["tokens"].get<int64_t>()};
  }
  return scores;
}

absl::Status Scores::CheckComparable(const Scores& earlier) const {
  for (const auto& [task, count] : tasks_) {
    const Count other = earlier.Of(task);
    if (count.of != other.of) {
      return absl::InvalidArgumentError(
          absl::StrCat("has ", other.of, " questions of task '", task, "' and this run ", count.of));
    }
    if (count.expected.tokens != other.expected.tokens) {
      return absl::InvalidArgumentError(absl::StrCat("has ", other.expected.tokens, " scored tokens of task '", task,
                                                     "' and this run ", count.expected.tokens,
                                                     "; use the same tokenizer, and --perplexity in both or neither"));
    }
  }
  if (tasks_.size() != earlier.tasks_.size()) return absl::InvalidArgumentError("has tasks that this run has not");
  return absl::OkStatus();
}

Json Scores::ToJson(const Scores* earlier) const {
  const Scores none;
  const Scores& before = earlier == nullptr ? none : *earlier;
  const auto to_json = [&](const Count& count, const Count& was) {
    Json json = {{"right", count.right}, {"of", count.of}, {"share", count.share()}};
    if (earlier != nullptr) json["difference"]["right"] = count.right - was.right;
    if (!count.has_perplexity()) return json;
    json["tokens"] = count.expected.tokens;
    json["sum_logprob"] = count.expected.sum_logprob;
    json["perplexity"] = count.perplexity();
    if (earlier != nullptr) json["difference"]["perplexity"] = count.perplexity() - was.perplexity();
    return json;
  };
  Json json = to_json(Total(), before.Total());
  json["tasks"] = Json::object();
  for (const auto& [task, count] : tasks_) json["tasks"][task] = to_json(count, before.Of(task));
  return json;
}

std::string Scores::ToText(const Scores* earlier) const {
  const Scores none;
  const Scores& before = earlier == nullptr ? none : *earlier;
  size_t width = std::string_view("all").size();
  for (const auto& [task, count] : tasks_) width = std::max(width, task.size());
  std::string text;
  const auto add = [&](const std::string& name, const Count& count, const Count& was) {
    absl::StrAppendFormat(&text, "%-*s  %6.1f %%  %d of %d", static_cast<int>(width), name, 100 * count.share(),
                          count.right, count.of);
    if (earlier != nullptr) absl::StrAppendFormat(&text, " (%+d)", count.right - was.right);
    if (count.has_perplexity()) {
      absl::StrAppendFormat(&text, ", perplexity %.5f", count.perplexity());
      if (earlier != nullptr) absl::StrAppendFormat(&text, " (%+.5f)", count.perplexity() - was.perplexity());
    }
    text += '\n';
  };
  for (const auto& [task, count] : tasks_) add(task, count, before.Of(task));
  add("all", Total(), before.Total());
  return text;
}

}  // namespace moestro::cli
