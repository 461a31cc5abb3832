// The figures of the report. Each function adds claims and charts to its figure, and may add notes to the report.
#pragma once

#include <string>
#include <vector>

#include "services/cli/paper/claims.h"
#include "services/cli/paper/trimoe/systems.h"

namespace moestro::cli {

struct TriMoeContext {
  TriMoeStudy& study;
  std::vector<std::string>& notes;
};

void AddWorkload(const TriMoeContext& context, Figure& figure);     // Table 2, section 3.1, the predictor
void AddDecode(const TriMoeContext& context, Figure& figure);       // Fig. 6
void AddEndToEnd(const TriMoeContext& context, Figure& figure);     // Fig. 7
void AddBusyShares(const TriMoeContext& context, Figure& figure);   // Table 3
void AddAblation(const TriMoeContext& context, Figure& figure);     // Fig. 8
void AddSensitivity(const TriMoeContext& context, Figure& figure);  // Fig. 9
void AddRobustness(const TriMoeContext& context, Figure& figure);   // section 5.5: small batches
void AddMigration(const TriMoeContext& context, Figure& figure);    // section 5.5: overhead

}  // namespace moestro::cli
