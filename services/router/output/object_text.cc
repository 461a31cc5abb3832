#include "services/router/output/object_text.h"

#include <nlohmann/json.hpp>

namespace moestro::router {

using nlohmann::json;

void ObjectText::Set(const std::string& name, std::string json) {
  const auto [place, is_new] = places_.emplace(name, members_.size());
  if (is_new) {
    members_.emplace_back(name, std::move(json));
  } else {
    members_[place->second].second = std::move(json);
  }
}

std::string ObjectText::Text() const {
  std::string text = "{";
  for (const auto& [name, json] : members_) {
    if (text.size() > 1) text += ", ";
    text.append(QuotedJson(name)).append(": ").append(json);
  }
  return text + "}";
}

std::string QuotedJson(std::string_view text) {
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
}

bool IsJson(std::string_view text) { return text.find('\0') == std::string_view::npos && json::accept(text); }

}  // namespace moestro::router
