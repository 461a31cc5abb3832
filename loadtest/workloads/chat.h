// Conversations: every user sends the shared system prompt and a message, gets an answer, thinks, and sends everything
// so far with one more message. What a prefix cache is for.
#pragma once

#include <vector>

#include "loadtest/workloads/prompts.h"
#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

struct ChatOptions {
  int users = 4;  // at the same time
  int turns = 5;
  int64_t system_tokens = 200;  // the same for all
  int64_t message_tokens = 50;  // each turn, of one user only
  uint32_t answer_tokens = 40;
  double think_seconds = 0;    // between an answer and the next message
  double stagger_seconds = 0;  // between the first messages of two users
  int64_t vocab_size = 0;
  uint64_t seed = 0;
};

// Tokens of the last turn's prompt and answer together.
int64_t LongestConversation(const ChatOptions& options);

class ChatWorkload : public Workload {
 public:
  explicit ChatWorkload(const ChatOptions& options);

  std::optional<double> NextArrival(double now) override;
  Request Take(double now) override;  // group "turn N", tag: the user
  // A conversation ends early with a turn that fails.
  void OnEnd(const Record& record) override;

 private:
  struct User {
    std::vector<int32_t> history;
    int turn = 0;                // begun so far
    std::optional<double> next;  // when it sends; none: it waits for an answer, or is done
  };
  const ChatOptions options_;
  PromptMaker prompts_;
  std::vector<User> users_;
};

}  // namespace moestro::loadtest
