#include "common/text/chat_template.h"

#include <utility>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/jinja/evaluator.h"
#include "common/text/jinja/parser.h"
#include "common/text/utf8.h"

namespace moestro::text {
namespace {

absl::StatusOr<jinja::Value> MessageList(std::span<const ChatMessage> messages) {
  std::vector<jinja::Value> list;
  list.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    for (const std::string* text : {&messages[i].role, &messages[i].content}) {
      if (const auto offset = FindInvalidUtf8(*text)) {
        return absl::InvalidArgumentError(Concat("message ", i, " is not valid UTF-8 at byte ", *offset));
      }
    }
    MOE_ASSIGN_OR_RETURN(jinja::Value message,
                         jinja::Value::MakeDict({{"role", messages[i].role}, {"content", messages[i].content}}));
    list.push_back(std::move(message));
  }
  return jinja::Value::MakeList(std::move(list));
}

}  // namespace

struct ChatTemplate::Program {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view jinja_source) {
  MOE_ASSIGN_OR_RETURN(jinja::Body body, jinja::Parse(jinja_source));
  auto program = std::make_unique<const Program>(Program{std::move(body)});
  return std::unique_ptr<const ChatTemplate>(new ChatTemplate(std::move(program)));
}

absl::StatusOr<std::string> ChatTemplate::Render(std::span<const ChatMessage> messages, const Options& options) const {
  jinja::Variables variables;
  for (const auto& [name, value] : options.flags) variables[name] = value;
  MOE_ASSIGN_OR_RETURN(variables["messages"], MessageList(messages));
  variables["add_generation_prompt"] = options.add_generation_prompt;
  variables["bos_token"] = options.bos_token;
  variables["eos_token"] = options.eos_token;
  // Templates compare these with none; every template runner defines them.
  variables["tools"] = jinja::Value::None{};
  variables["documents"] = jinja::Value::None{};
  return jinja::Evaluator(std::move(variables)).Render(program_->body);
}

}  // namespace moestro::text
