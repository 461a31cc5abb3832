// The shapes of models as they were published, for simulations and benchmarks.
#pragma once

#include <string>
#include <vector>

#include "common/weights/model_spec.h"

namespace moestro {

std::vector<std::string> PublishedModels();
// REQUIRES: one of PublishedModels().
ModelSpec PublishedModel(const std::string& name);

}  // namespace moestro
