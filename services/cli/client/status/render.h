// A node's status as text and as JSON. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/client/status/node_view.h"

namespace moestro::cli::status {

// Lines for a terminal of 80 columns.
std::string StatusText(const NodeView& view);

// Unknown values are null.
nlohmann::ordered_json StatusJson(const NodeView& view);

}  // namespace moestro::cli::status
