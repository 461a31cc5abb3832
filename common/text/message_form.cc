#include "common/text/message_form.h"

#include <algorithm>
#include <utility>

namespace moestro::text {
namespace {

using Messages = std::vector<ChatMessage>;
using RenderWith = std::function<absl::StatusOr<std::string>(const Chat&, const MessageForm&)>;

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool HasOnlyContent(const ChatMessage& message, const MessageForm& form) {
  return message.tool_calls.empty() && message.tool_call_id.empty() && message.reasoning_content.empty() &&
         (message.name.empty() || !form.shows_names);
}

// What the probes look for in a prompt.
constexpr const char* kWords[] = {"probing words", "further words"};
constexpr char kProbingId[] = "call00001";  // nine characters: some templates insist

const ChatMessage kQuestion{.role = "user", .content = "question"};

ChatMessage Probing(const char* role, int words = 0) { return {.role = role, .content = kWords[words]}; }

ChatMessage ProbingCall(const char* arguments) {
  return {
      .role = "assistant", .content = "", .tool_calls = {{.id = kProbingId, .name = "probe", .arguments = arguments}}};
}

ChatMessage ProbingResult(const char* content) {
  return {.role = "tool", .content = content, .tool_call_id = kProbingId, .name = "probe"};
}

// Changes the form step by step; a change stays if the template shows more with it.
class FormFinder {
 public:
  explicit FormFinder(const RenderWith& render) : render_(render) {}

  void FindUsers() {
    FindParts({Probing("user")}, "user");
    FindAlone({Probing("user"), Probing("user", 1)}, "user");
    const ChatMessage named{.role = "user", .content = "question", .name = kWords[0]};
    const absl::StatusOr<std::string> text = render_({.messages = {named}}, form_);
    form_.shows_names = text.ok() && Has(*text, kWords[0]);
  }

  void FindAssistants() {
    FindParts({kQuestion, Probing("assistant"), kQuestion}, "assistant");
    FindAlone({kQuestion, Probing("assistant"), Probing("assistant", 1), kQuestion}, "assistant");
  }

  void FindSystems() {
    const auto set = [this](MessageForm::Systems systems) { return [=, this] { form_.systems = systems; }; };
    const Messages leading = {Probing("system"), kQuestion};
    FindParts(leading, "system");
    if (!render_({.messages = leading}, form_).ok()) Try(leading, set(MessageForm::Systems::kNone));
    // One that reads no system message, and does not refuse it either, has a publisher who wanted that.
    if (form_.systems == MessageForm::Systems::kNone || !Shows(leading)) return;
    FindAlone({Probing("system"), Probing("system", 1), kQuestion}, "system");
    const ChatMessage first{.role = "system", .content = "instructions"};
    const ChatMessage answer{.role = "assistant", .content = "answer"};
    Try({first, kQuestion, Probing("system")}, set(MessageForm::Systems::kLeading));
    Try({first, kQuestion, answer, Probing("system"), kQuestion}, set(MessageForm::Systems::kLeading));
  }

  void FindCalls() {
    const Chat chat{.messages = {kQuestion, ProbingCall(R"({"key": "value"})"), ProbingResult("result")}};
    const MessageForm before = form_;
    for (const auto& [as_text, is_none] :
         {std::pair(false, false), std::pair(false, true), std::pair(true, false), std::pair(true, true)}) {
      form_.arguments_as_text = as_text;
      form_.content_is_none = is_none;
      const absl::StatusOr<std::string> text = render_(chat, form_);
      const auto has = [&](const char* part) { return Has(*text, part); };
      if (text.ok() && has("probe") && has("key") && has("value") && !has("None")) return;
    }
    form_ = before;
  }

  void FindResults() { FindParts({kQuestion, ProbingCall("{}"), ProbingResult(kWords[0])}, "tool"); }

  MessageForm form() const { return form_; }

 private:
  bool Shows(const Messages& messages) const {
    const absl::StatusOr<std::string> text = render_({.messages = messages}, form_);
    if (!text.ok()) return false;
    // A template that prints a list as it is does not read its parts.
    if (Has(*text, "'type': 'text'") || Has(*text, R"("type": "text")")) return false;
    return std::ranges::all_of(messages, [&](const ChatMessage& message) {
      return std::ranges::find(kWords, message.content) == std::end(kWords) || Has(*text, message.content);
    });
  }

  void Try(const Messages& messages, const std::function<void()>& change) {
    if (Shows(messages)) return;
    const MessageForm before = form_;
    change();
    if (!Shows(messages)) form_ = before;
  }

  void FindParts(const Messages& messages, const char* role) {
    Try(messages, [&] { form_.roles_of_parts.emplace_back(role); });
  }

  void FindAlone(const Messages& messages, const char* role) {
    Try(messages, [&] { form_.roles_alone.emplace_back(role); });
  }

  const RenderWith& render_;
  MessageForm form_;
};

}  // namespace

std::vector<ArrangedMessage> ArrangedMessages(const std::vector<ChatMessage>& messages, const MessageForm& form) {
  std::vector<ArrangedMessage> arranged;
  arranged.reserve(messages.size());
  bool leads = form.systems != MessageForm::Systems::kNone;
  for (size_t i = 0; i < messages.size(); ++i) {
    ArrangedMessage next{.index = i, .message = messages[i]};
    std::string& role = next.message.role;
    leads = leads && role == "system";
    if (form.systems != MessageForm::Systems::kAll && role == "system" && !leads) role = "user";
    const bool joins = !arranged.empty() && arranged.back().message.role == role &&
                       std::ranges::count(form.roles_alone, role) != 0 &&
                       HasOnlyContent(arranged.back().message, form) && HasOnlyContent(next.message, form);
    if (joins) {
      std::string& content = arranged.back().message.content;
      if (!content.empty() && !next.message.content.empty()) content += "\n\n";
      content += next.message.content;
    } else {
      arranged.push_back(std::move(next));
    }
  }
  return arranged;
}

MessageForm FindMessageForm(const RenderWith& render, bool with_calls) {
  FormFinder finder(render);
  finder.FindUsers();
  finder.FindAssistants();
  finder.FindSystems();
  if (with_calls) {
    finder.FindCalls();
    finder.FindResults();
  }
  return finder.form();
}

}  // namespace moestro::text
