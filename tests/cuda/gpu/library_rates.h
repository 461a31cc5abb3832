// Rates that library_ceilings.py has measured on this GPU.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace moestro {

struct LibraryRates {
  double bf16_flops_per_second = 0;  // 0: not known, as the next
  double fp8_flops_per_second = 0;
};

// Of a file that it has written; none if there is no such file.
inline LibraryRates ReadLibraryRates(const std::string& file) {
  const nlohmann::json rates = nlohmann::json::parse(std::ifstream(file), nullptr, false);
  if (!rates.is_object()) return {};
  return {rates.value("bf16_flops_per_second", 0.0), rates.value("fp8_flops_per_second", 0.0)};
}

}  // namespace moestro
