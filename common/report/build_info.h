// Of which source a binary was built, and when a report was made: what a report needs so that others can repeat it.
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

// Nobody else has these sources.
bool IsDirty(std::string_view revision);
// "4a2ffd1", "4a2ffd1-dirty (with uncommitted changes)", "unknown".
std::string RevisionText(const std::string& revision);

// "2026-11-22", in UTC.
std::string Today();

}  // namespace moestro
