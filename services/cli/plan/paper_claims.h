// Compares a paper's figures with those of two simulations: of this implementation, and of the paper's way.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moestro::cli {

// The value of a figure that the simulation never reaches.
inline constexpr double kNotReached = std::numeric_limits<double>::quiet_NaN();

struct PaperFigure {
  std::string what;
  double paper = 0;
  double simulated = 0;  // or kNotReached
  bool fitted = false;   // a value of the machine was chosen to give this figure: not a prediction
};

// For each figure {what, paper, built, paper_way}; the last two {simulated, deviation: simulated / paper - 1}, or
// {simulated, fitted: true}, or {simulated: null}. REQUIRES: the same figures in the same order.
nlohmann::ordered_json PaperClaims(const std::vector<PaperFigure>& built, const std::vector<PaperFigure>& paper_way);
// Prints a table, one line per figure, and explains its columns.
void PrintClaims(const nlohmann::ordered_json& claims);

}  // namespace moestro::cli
