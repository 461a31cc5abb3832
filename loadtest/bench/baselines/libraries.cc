#include "loadtest/bench/baselines/libraries.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace moestro::bench {

absl::StatusOr<const MoestroGemvLibrary*> LoadGemvLibrary(const std::string& plugin) {
  // Found beside the binary, by its run path.
  void* handle = dlopen(absl::StrCat("libmoestro_bench_", plugin, ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = handle == nullptr ? nullptr : dlsym(handle, kGemvLibrarySymbol);
  if (symbol == nullptr) {
    const char* package = plugin == "openblas" ? "libopenblas-dev" : "libdnnl-dev";
    return absl::FailedPreconditionError(
        absl::StrCat("this build has no plug-in for it: install ", package, ", configure and build again"));
  }
  return reinterpret_cast<MoestroGemvLibraryFunction>(symbol)();
}

}  // namespace moestro::bench
