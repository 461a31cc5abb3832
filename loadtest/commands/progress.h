// The progress that the user sees on stderr: one line rewritten in place on a terminal, otherwise a line every few
// seconds.
#pragma once

#include <string>

#include "loadtest/run/recorder.h"

namespace moestro::loadtest {

class Progress {
 public:
  Progress();
  ~Progress();

  // `what`: the running part of the test. May be called at any rate.
  void Show(const Counts& counts, double seconds, const std::string& what);
  // Erases the line, so that something else can be printed.
  void Clear();

 private:
  const bool terminal_;
  double shown_at_ = 0;
  int64_t shown_tokens_ = 0;
  bool line_ = false;
};

}  // namespace moestro::loadtest
