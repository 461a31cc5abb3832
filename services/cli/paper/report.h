// A paper's report as text, as files for a spreadsheet, and as a page. The same report gives the same bytes.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "services/cli/paper/claims.h"

namespace moestro::cli {

// The claims that are not met, the farthest first, then the claims of each figure.
std::string ReportText(const PaperReport& report);
// One line per claim, in the order of the text's first table and then of the figures; each claim once.
std::string ClaimsCsv(const PaperReport& report);
// One line per point of a chart.
std::string PointsCsv(const PaperReport& report);
// Self-contained, with the charts, in both colour schemes.
std::string ReportPage(const PaperReport& report);

// claims.csv, points.csv and index.html in the directory, which is made if need be. INVALID_ARGUMENT begins with --out.
absl::Status WriteReport(const PaperReport& report, const std::filesystem::path& directory);

}  // namespace moestro::cli
