#include "common/report/build_info.h"

#include <ctime>

#include "common/report/build_info_values.h"

namespace moestro {

const BuildInfo& ThisBuild() {
  static const BuildInfo& info = *new BuildInfo{kCompiler, kBuildType, kVersion, kRevision};
  return info;
}

bool IsDirty(std::string_view revision) { return revision.ends_with("-dirty"); }

std::string RevisionText(const std::string& revision) {
  if (revision.empty()) return "unknown";
  return IsDirty(revision) ? revision + " (with uncommitted changes)" : revision;
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[sizeof "2026-11-22"];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &utc)};
}

}  // namespace moestro
