// What `moestro batch` says while it runs and at its end.
#pragma once

#include <string>

#include "common/batch/batch_run.h"

namespace moestro::cli {

// "1 h 02 min", "12 min 05 s", "9 s"
std::string HumanTime(double seconds);

// "812 of 2000 lines, 3 failed, 412.0 tok/s, 12 min 05 s left; waiting: HTTP 503: prefill does not answer"
std::string ProgressLine(const batch::Progress& progress);

// In a terminal one line that changes, else a line now and then. Clears the former at its end.
class ProgressPrinter {
 public:
  ProgressPrinter();
  ~ProgressPrinter();
  void Show(const batch::Progress& progress);

 private:
  const bool terminal_;
  double shown_at_ = 0;
};

}  // namespace moestro::cli
