// Which kernel tables a test compares that compares several.
#pragma once

#include <cstdlib>
#include <string_view>

namespace moestro {

// MOESTRO_TEST_TABLES=best: the portable one and this CPU's best. tests/run sets it unless it runs all tests.
inline bool OnlyTheBestTables() {
  const char* const setting = std::getenv("MOESTRO_TEST_TABLES");
  return setting != nullptr && std::string_view(setting) == "best";
}

}  // namespace moestro
