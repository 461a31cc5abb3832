// The output of a batch: the results of its journal in the order of the requests.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/batch/journal.h"
#include "common/batch/request_file.h"

namespace moestro::batch {

struct ResultPaths {
  std::string output;
  std::string errors = {};  // where results go that are no answers; empty: into the output, too
};

// Writes the results that there are. Each file appears as a whole: what a killed process has begun is in PATH.partial.
// Doing it again gives the same bytes. An errors file without a line is not made. RESOURCE_EXHAUSTED names a file that
// cannot be written; those of Journal::Read.
absl::Status WriteResults(const RequestFile& file, const Journal& journal, const ResultPaths& paths);

}  // namespace moestro::batch
