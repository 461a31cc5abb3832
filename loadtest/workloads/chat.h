// Conversations: every user sends the shared system prompt and a message, gets an answer, thinks, and sends everything
// so far with one more message. Exercises the prefix cache.
#pragma once

#include <vector>

#include "loadtest/workloads/prompts.h"
#include "loadtest/workloads/workload.h"

namespace moestro::loadtest {

struct ChatOptions {
  int users = 4;  // at the same time
  int turns = 5;
  int64_t system_tokens = 200;  // shared by all users
  int64_t message_tokens = 50;  // per turn, of one user only
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
  // A turn that fails ends its conversation.
  void OnEnd(const Record& record) override;

 private:
  struct User {
    std::vector<int32_t> history;
    int turn = 0;                // started so far
    std::optional<double> next;  // when it sends next; none: waiting for an answer, or finished
  };
  const ChatOptions options_;
  PromptMaker prompts_;
  std::vector<User> users_;
};

}  // namespace moestro::loadtest
