#include "loadtest/workloads/chat.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace moestro::loadtest {

int64_t LongestConversation(const ChatOptions& options) {
  return options.system_tokens + options.turns * (options.message_tokens + options.answer_tokens);
}

ChatWorkload::ChatWorkload(const ChatOptions& options) : options_(options), prompts_(options.vocab_size, options.seed) {
  for (int i = 0; i < options.users; ++i) {
    users_.push_back(
        {.history = prompts_.Prefix("system", options.system_tokens), .turn = 0, .next = i * options.stagger_seconds});
  }
}

std::optional<double> ChatWorkload::NextArrival(double) {
  std::optional<double> first;
  for (const User& user : users_) {
    if (user.next && (!first || *user.next < *first)) first = user.next;
  }
  return first;
}

Request ChatWorkload::Take(double) {
  const auto user = std::ranges::min_element(users_, {}, [](const User& u) { return u.next.value_or(1e300); });
  const std::vector<int32_t> message = prompts_.Random(options_.message_tokens);
  user->history.insert(user->history.end(), message.begin(), message.end());
  ++user->turn;
  user->next.reset();
  Request request;
  request.group = absl::StrCat("turn ", user->turn);
  request.tag = user - users_.begin();
  request.token_ids = user->history;
  request.max_tokens = options_.answer_tokens;
  return request;
}

void ChatWorkload::OnEnd(const Record& record) {
  User& user = users_[static_cast<size_t>(record.tag)];
  if (!record.completed() || user.turn == options_.turns) return;
  user.history.insert(user.history.end(), record.tokens.begin(), record.tokens.end());
  user.next = *record.ended + options_.think_seconds;
}

}  // namespace moestro::loadtest
