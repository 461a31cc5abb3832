// config.json and generation_config.json with the keys of the published DeepSeek-V3 files.
#pragma once

#include <string>

#include "services/cli/make_model/geometry.h"

namespace moestro {

std::string ConfigJson(const Geometry& geometry);
std::string GenerationConfigJson();

}  // namespace moestro
