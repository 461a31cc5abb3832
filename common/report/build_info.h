// A binary's source revision and a report's date, so that others can reproduce the report.
#pragma once

#include <string>
#include <string_view>

namespace moestro {

struct BuildInfo {
  std::string compiler;
  std::string build;  // build type
  std::string version;
  std::string revision;  // `git describe`; ends with "-dirty" if the sources had uncommitted changes; empty: unknown
};
const BuildInfo& ThisBuild();

// Whether the revision has uncommitted changes, so that nobody else has these sources.
bool IsDirty(std::string_view revision);
// "4a2ffd1", "4a2ffd1-dirty (with uncommitted changes)", "unknown".
std::string RevisionText(const std::string& revision);

// "2026-11-22", in UTC.
std::string Today();

}  // namespace moestro
