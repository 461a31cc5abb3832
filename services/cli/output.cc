#include "services/cli/output.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace moestro::cli {

bool IsTerminal(StandardStream stream) { return isatty(static_cast<int>(stream)) == 1; }

void PrintJson(const nlohmann::json& json, bool indent) {
  PrintText(json.dump(indent ? 2 : -1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace));
  PrintText("\n");
}

void PrintText(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

absl::Status OutputStatus() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return absl::OkStatus();
  return absl::DataLossError("stdout: cannot be written; the result is incomplete");
}

}  // namespace moestro::cli
