// What the user sees on stderr while a test runs: one line that is rewritten on a terminal, a line every few seconds
// elsewhere.
#pragma once

#include <string>

#include "loadtest/run/recorder.h"

namespace moestro::loadtest {

class Progress {
 public:
  Progress();
  ~Progress();

  // `what`: the part of the test that runs. May be called as often as one likes.
  void Show(const Counts& counts, double seconds, const std::string& what);
  // Wipes the line, so that something else can be printed.
  void Clear();

 private:
  const bool terminal_;
  double shown_at_ = 0;
  int64_t shown_tokens_ = 0;
  bool line_ = false;
};

}  // namespace moestro::loadtest
