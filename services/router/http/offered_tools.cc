#include "services/router/http/offered_tools.h"

namespace moestro::router {
namespace {

using nlohmann::json;

// The text of a field; empty if it has none.
std::string TextAt(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// What has the fields of a function in any API's form is one, whatever its type is called.
bool IsLeftOutTool(Api api, const json& tool) {
  if (tool.contains("function") || tool.contains("input_schema")) return false;
  return IsLeftOut(api, "tools[].type", TextAt(tool, "type"));
}

}  // namespace

OfferedTools::OfferedTools(Api api, const json& request) : api_(api) {
  const auto at = [&](const char* key) {
    const auto found = request.find(key);
    return found == request.end() ? json() : *found;
  };
  for (const json& tool : at("tools")) {
    if (tool.is_object() && TextAt(tool, "type").starts_with("tool_search")) none_waits_ |= IsLeftOutTool(api, tool);
  }
  const json choice = at("tool_choice");
  if (choice.is_object()) loaded_.insert(TextAt(choice, "name"));
  for (const char* key : {"messages", "input"}) FindReferences(at(key));
}

// Objects nest as deep as a request may.
void OfferedTools::FindReferences(const json& value) {
  if (!value.is_structured()) return;
  if (value.is_object() && TextAt(value, "type") == "tool_reference") {
    loaded_.insert(TextAt(value, value.contains("tool_name") ? "tool_name" : "name"));
  }
  // OpenAI's searches answer with the tools themselves.
  if (value.is_object() && TextAt(value, "type") == "tool_search_output" && value.contains("tools")) {
    for (const json& tool : value["tools"]) {
      if (tool.is_object()) loaded_.insert(TextAt(tool, "name"));
    }
  }
  for (const json& inner : value) FindReferences(inner);
}

bool OfferedTools::Has(const json& tool) const {
  if (IsLeftOutTool(api_, tool)) return false;
  const auto deferred = tool.find("defer_loading");
  const bool waits = deferred != tool.end() && *deferred == true && api_ != Api::kChat;
  return !waits || none_waits_ || loaded_.contains(TextAt(tool, "name"));
}

}  // namespace moestro::router
