#include <histedit.h>

#include <clocale>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/interrupt.h"
#include "services/cli/client/request_flags.h"
#include "services/cli/command.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

struct ChatFlags {
  ServerFlags server;
  SamplingFlags sampling;
  TemplateFlags chat_template;
  std::string system;
  bool json = false;
};

// Reads lines from the terminal. Arrow keys edit and recall them. Ctrl-C empties the line.
class LineEditor {
 public:
  LineEditor() {
    // The lines are UTF-8, whatever the environment says.
    std::setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event;
    history(history_.get(), &event, H_SETSIZE, 1000);
    history(history_.get(), &event, H_SETUNIQUE, 1);
    el_set(editor_.get(), EL_PROMPT, Prompt);
    el_set(editor_.get(), EL_EDITOR, "emacs");
    el_set(editor_.get(), EL_HIST, history, history_.get());
    el_set(editor_.get(), EL_SETTY, "-d", "intr=", nullptr);  // Ctrl-C is a key, not a signal, while a line is edited
    el_set(editor_.get(), EL_BIND, "^C", "em-kill-line", nullptr);
  }

  // False at the end of the input.
  bool Read(std::string& line) {
    int bytes = 0;
    const char* read = el_gets(editor_.get(), &bytes);
    if (read == nullptr || bytes <= 0) return false;
    line.assign(read, bytes);
    if (line.ends_with('\n')) line.pop_back();
    HistEvent event;
    if (!line.empty()) history(history_.get(), &event, H_ENTER, line.c_str());
    return true;
  }

 private:
  static char* Prompt(EditLine*) {
    static char text[] = "> ";
    return text;
  }

  const std::unique_ptr<History, decltype(&history_end)> history_{history_init(), history_end};
  const std::unique_ptr<EditLine, decltype(&el_end)> editor_{el_init("moestro", stdin, stderr, stderr), el_end};
};

class ChatSession {
 public:
  explicit ChatSession(const ChatFlags& flags)
      : flags_(flags),
        interactive_(IsTerminal(StandardStream::kStdin)),
        client_(flags.server),
        interrupts_([this] { Interrupt(); }) {
    if (interactive_ && IsTerminal(StandardStream::kStderr)) editor_.emplace();
  }

  // Runs until the input ends. If the input is a pipe, the first failure also ends it.
  absl::Status Run() {
    MOE_RETURN_IF_ERROR(CheckUtf8("--system", flags_.system));
    MOE_RETURN_IF_ERROR(ApplySamplingFlags(flags_.sampling, empty_));
    MOE_RETURN_IF_ERROR(ApplyTemplateFlags(flags_.chat_template, *empty_.mutable_chat()));
    Reset();
    if (interactive_)
      std::fprintf(stderr, "/reset forgets the conversation, /exit or Ctrl-D ends it, Ctrl-C stops an answer\n");
    std::string line;
    while (ReadLine(line) && line != "/exit") {
      if (line.empty()) continue;
      if (line == "/reset") {
        Reset();
        continue;
      }
      const absl::Status status = Turn(line);
      if (status.ok()) continue;
      if (!interactive_) return status;
      std::fprintf(stderr, "moestro: %s\n", std::string(status.message()).c_str());
    }
    return absl::OkStatus();
  }

 private:
  bool ReadLine(std::string& line) {
    if (editor_.has_value()) return editor_->Read(line);
    if (interactive_) std::fprintf(stderr, "> ");
    return static_cast<bool>(std::getline(std::cin, line));
  }

  void Reset() {
    request_ = empty_;
    if (!flags_.system.empty()) Add("system", flags_.system);
  }

  void Add(const char* role, const std::string& content) {
    v1::ChatMessage& message = *request_.mutable_chat()->add_messages();
    message.set_role(role);
    message.set_content(content);
  }

  absl::Status Turn(const std::string& line) {
    MOE_RETURN_IF_ERROR(CheckUtf8("the line on stdin", line));
    Add("user", line);
    Answer answer;
    const absl::Status status = StreamAnswer(client_, request_, /*print=*/!flags_.json, answer);
    if (!flags_.json) PrintText("\n");
    const bool stopped = absl::IsCancelled(status);
    if (answer.text.empty() && !status.ok()) {
      request_.mutable_chat()->mutable_messages()->RemoveLast();  // As if the user had not asked.
      return stopped ? absl::OkStatus() : status;
    }
    // A partial answer stays in the conversation.
    Add("assistant", answer.text);
    if (!status.ok() && !stopped) return status;
    if (flags_.json) PrintJson(ToJson(answer), /*indent=*/false);
    if (interactive_) std::fprintf(stderr, "[%s]\n", stopped ? "stopped" : Summary(answer).c_str());
    return absl::OkStatus();
  }

  void Interrupt() {
    if (!client_.Cancel()) std::fprintf(stderr, "\n(/exit or Ctrl-D ends)\n> ");
  }

  const ChatFlags& flags_;
  const bool interactive_;
  std::optional<LineEditor> editor_;
  RouterClient client_;
  v1::GenerateRequest empty_;  // before the first message
  v1::GenerateRequest request_;
  InterruptWatcher interrupts_;  // last, because it uses the client
};

}  // namespace

void AddChatCommand(FlagSet& program, std::vector<Command>& commands) {
  const auto flags = std::make_shared<ChatFlags>();
  FlagSet command = program.AddCommand("chat", "Talk to the model, one line per turn");
  AddServerFlags(command, flags->server);
  AddSamplingFlags(command, flags->sampling);
  command.Add("--system", flags->system, "System prompt");
  AddTemplateFlags(command, flags->chat_template);
  command.AddSwitch("--json", flags->json, "A JSON line for each turn instead of the streamed text");
  commands.push_back({command, [flags] {
                        BlockInterrupts();
                        return ChatSession(*flags).Run();
                      }});
}

}  // namespace moestro::cli
