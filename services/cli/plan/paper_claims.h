// Figures of a paper beside those of two simulations: of what is built, and of the paper's way.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moestro {

// Of what never comes in a simulation.
inline constexpr double kNotReached = std::numeric_limits<double>::quiet_NaN();

struct PaperFigure {
  std::string what;
  double paper = 0;
  double simulated = 0;  // or kNotReached
  bool fitted = false;   // a number of the machine was chosen so that this one comes out: no prediction
};

// For each figure {what, paper, built, paper_way}; the last two {simulated, deviation: simulated / paper - 1}, or
// {simulated, fitted: true}, or {simulated: null}. REQUIRES: the same figures in the same order.
nlohmann::ordered_json PaperClaims(const std::vector<PaperFigure>& built, const std::vector<PaperFigure>& paper_way);
// A table, a line a figure, and what its columns are.
void PrintClaims(const nlohmann::ordered_json& claims);

}  // namespace moestro
