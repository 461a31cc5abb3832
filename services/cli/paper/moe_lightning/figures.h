// The figures of the report. Each function adds claims and charts to its figure, and may add notes to the report.
#pragma once

#include <string>
#include <vector>

#include "services/cli/paper/moe_lightning/moe_lightning.h"

namespace moestro::cli {

inline constexpr double kGiB = 1 << 30;

struct MoeLightningContext {
  const MoeLightningMachines& machines;
  std::vector<std::string>& notes;
};

void AddMemorySweep(const MoeLightningContext& context, Figure& figure);      // Fig. 1
void AddRooflines(const MoeLightningContext& context, Figure& figure);        // Figs. 4, 5
void AddBatches(const MoeLightningContext& context, Figure& figure);          // batch sizes of Figs. 7 and 8, Table 4
void AddBatchThroughput(const MoeLightningContext& context, Figure& figure);  // Figs. 7, 8, Table 4
void AddBaselines(const MoeLightningContext& context, Figure& figure);        // Fig. 7, Tables 4 and 5: others
void AddLatencies(const MoeLightningContext& context, Figure& figure);        // Fig. 9
void AddMachines(const MoeLightningContext& context, Figure& figure);         // Fig. 10

}  // namespace moestro::cli
