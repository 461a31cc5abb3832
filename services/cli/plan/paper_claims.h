// Compares a paper's figures with those of two simulations: of this implementation, and of the paper's way.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moestro::cli {

// The value of a figure that the simulation never reaches.
inline constexpr double kNotReached = std::numeric_limits<double>::quiet_NaN();

// How a paper states a value. "up to" and "about" are kNear: a value below is no better.
enum class Bound { kNear, kAtMost, kAtLeast };

struct PaperFigure {
  std::string what;
  double paper = 0;
  double simulated = 0;  // or kNotReached
  bool fitted = false;   // a value of the machine was chosen to give this figure: not a prediction
  Bound bound = Bound::kNear;
  const char* figure = "";   // which of the paper's it belongs to: "13"
  const char* section = "";  // where the paper prints it: "4.2"
};

// The same figures in the same order.
struct PaperComparison {
  std::vector<PaperFigure> built;
  std::vector<PaperFigure> paper_way;
};

// For each figure {what, paper, built, paper_way}; the last two {simulated, deviation: simulated / paper - 1}, or
// {simulated, fitted: true}, or {simulated: null}.
nlohmann::ordered_json PaperClaims(const PaperComparison& comparison);
// Prints a table, one line per figure, and explains its columns.
void PrintClaims(const nlohmann::ordered_json& claims);

}  // namespace moestro::cli
