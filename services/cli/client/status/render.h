// A node's status as a person and as a program reads it. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/client/status/node_view.h"

namespace moestro::status {

// Lines for a terminal of 80 columns.
std::string StatusText(const NodeView& view);

// What is not known is null.
nlohmann::ordered_json StatusJson(const NodeView& view);

}  // namespace moestro::status
