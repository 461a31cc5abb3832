// The figures of the report. Each function adds claims and charts to its figure.
#pragma once

#include "absl/status/status.h"
#include "services/cli/paper/osdi/osdi.h"

namespace moestro::cli {

struct OsdiContext {
  const OsdiInput& input;
  weights::ModelSpec v3;

  const device::HardwareSpec& built() const { return input.node.built; }
  DType activations() const { return input.node.BuiltActivations(); }
};

constexpr int64_t kKibi = 1024;

// What arithmetic alone gives.
inline Claim ExactClaim(const char* what, double paper, double ours, const char* section) {
  return {.what = what,
          .paper = paper,
          .section = section,
          .ours = ours,
          .origin = Origin::kComputed,
          .basis = Basis::kExact};
}

absl::Status AddModels(const OsdiContext& context, Figure& figure);       // Fig. 1
absl::Status AddLayer(const OsdiContext& context, Figure& figure);        // Fig. 3
absl::Status AddThroughput(const OsdiContext& context, Figure& figure);   // Fig. 13
absl::Status AddFirstToken(const OsdiContext& context, Figure& figure);   // Fig. 14
absl::Status AddDecode(const OsdiContext& context, Figure& figure);       // Fig. 15
absl::Status AddBatches(const OsdiContext& context, Figure& figure);      // Fig. 16
absl::Status AddFourBits(const OsdiContext& context, Figure& figure);     // Fig. 17
absl::Status AddConcurrency(const OsdiContext& context, Figure& figure);  // Fig. 18
absl::Status AddKernels(const OsdiContext& context, Figure& figure);      // Table 1
absl::Status AddQuality(const OsdiContext& context, Figure& figure);      // Table 2
absl::Status AddSensitivity(const OsdiContext& context, Figure& figure);  // section 6

}  // namespace moestro::cli
