#include "loadtest/commands/progress.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_format.h"

namespace moestro::loadtest {
namespace {

constexpr double kTerminalSeconds = 0.5;
constexpr double kLogSeconds = 5;

}  // namespace

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}
Progress::~Progress() { Clear(); }

void Progress::Show(const Counts& counts, double seconds, const std::string& what) {
  if (seconds < shown_at_) {  // another run began
    shown_at_ = 0;
    shown_tokens_ = 0;
  }
  const double elapsed = seconds - shown_at_;
  if (elapsed < (terminal_ ? kTerminalSeconds : kLogSeconds)) return;
  const double rate = static_cast<double>(counts.tokens - shown_tokens_) / elapsed;
  const std::string line =
      absl::StrFormat("%6.1f s  %s%s%d in flight, %d completed, %d failed, %.1f tok/s", seconds, what,
                      what.empty() ? "" : ": ", counts.in_flight(), counts.completed, counts.failed, rate);
  std::fprintf(stderr, terminal_ ? "\r%s\033[K" : "%s\n", line.c_str());
  std::fflush(stderr);
  line_ = terminal_;
  shown_at_ = seconds;
  shown_tokens_ = counts.tokens;
}

void Progress::Clear() {
  if (line_) std::fprintf(stderr, "\r\033[K");
  line_ = false;
}

}  // namespace moestro::loadtest
