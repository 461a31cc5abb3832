// What a paper says, beside what this project says: figures, each with claims that are judged and charts of points.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/plan/paper_claims.h"

namespace moestro::cli {

// Where a value is from.
enum class Origin {
  kSimulated,  // the roles' simulations, or formulas, with the rates of a hardware file
  kMeasured,   // a report of `moestro bench`
  kCited,      // printed in the paper, of the paper's system or of another one
  kComputed,   // arithmetic over published shapes and data sheets
};
const char* OriginName(Origin origin);

enum class Basis {
  kPredicted,
  kFitted,  // a number of the machine was chosen to give this value
  kExact,   // only the paper's rounding may lie between both values
  kOpen,    // nothing here has the value yet
};

struct Claim {
  std::string what;
  double paper = 0;
  Bound bound = Bound::kNear;
  std::string section;        // where the paper prints the value
  double ours = kNotReached;  // or, for kOpen, meaningless
  Origin origin = Origin::kSimulated;
  Basis basis = Basis::kPredicted;
  std::optional<double> paper_way = std::nullopt;  // the same of a simulation of the paper's system
  bool paper_way_fitted = false;
};

// A deviation above this is a miss; of exact claims, above kRounding.
inline constexpr double kMostDeviation = 0.15;
inline constexpr double kRounding = 0.01;

enum class Verdict {
  kMiss,    // deviates by more than may be; or the value is never reached
  kNotMet,  // a limit is not kept, but nearly
  kMet,
  kFitted,
  kOpen,
};
Verdict VerdictOf(const Claim& claim);
const char* VerdictName(Verdict verdict);

// ours / paper - 1. NaN where there is nothing to compare: fitted, open, not reached.
double Deviation(const Claim& claim);
// How far the claim is from holding: of a limit only what exceeds it counts. Infinite where it is never reached.
double Excess(const Claim& claim);

struct Chart {
  struct Point {
    double x = 0;  // of a chart of bars: index of the group
    double y = 0;
    std::string label = {};
  };
  struct Curve {
    std::string name;
    Origin origin = Origin::kSimulated;
    std::vector<Point> points;
    bool dots = false;  // labelled dots instead of a line
  };
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<std::string> groups = {};  // not empty: bars
  bool log_x = false;
  bool log_y = false;
  std::vector<Curve> curves = {};
};

struct Figure {
  std::string id;  // as --figure names it: "13"
  std::string title;
  std::string about;
  std::vector<Claim> claims = {};
  std::vector<Chart> charts = {};
};

struct PaperReport {
  std::string name;                // of files: "osdi"
  std::string title;               // of the paper
  std::vector<std::string> notes;  // what the values rest on
  std::vector<Figure> figures;
};

// Adds those of the comparison's values that belong to the figure.
void AddClaims(const PaperComparison& comparison, Figure& figure);

}  // namespace moestro::cli
