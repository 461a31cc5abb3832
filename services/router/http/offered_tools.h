// Which of a request's tools the model learns of.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "services/router/http/api_fields.h"

namespace moestro::router {

// Tools of types that are left out stand beside those that the client runs. Deferred ones wait until the conversation
// refers to them, or tool_choice names one. Where the search for them is a tool that is left out nobody would ever
// refer to them, so none waits.
class OfferedTools {
 public:
  // `request` must outlive this.
  OfferedTools(Api api, const nlohmann::json& request);

  bool Has(const nlohmann::json& tool) const;  // REQUIRES: an object

 private:
  void FindReferences(const nlohmann::json& value);

  const Api api_;
  bool none_waits_ = false;
  std::set<std::string> loaded_;
};

}  // namespace moestro::router
