// The GEMV libraries that this build has plug-ins for.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "loadtest/bench/baselines/gemv_library.h"

namespace moestro::bench {

// `plugin`: "openblas" or "onednn". Stays loaded. FAILED_PRECONDITION, naming the missing package, if the plug-in was
// not built or cannot be loaded.
absl::StatusOr<const MoestroGemvLibrary*> LoadGemvLibrary(const std::string& plugin);

}  // namespace moestro::bench
