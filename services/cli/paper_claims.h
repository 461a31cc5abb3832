// Figures of a paper beside those of a simulation.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace moestro {

// {what, paper, simulated, deviation: simulated / paper - 1}
nlohmann::ordered_json Claim(const std::string& what, double paper, double simulated);
// A table, a line a claim.
void PrintClaims(const nlohmann::ordered_json& claims);

}  // namespace moestro
