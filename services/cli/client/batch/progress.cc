#include "services/cli/client/batch/progress.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/output.h"

namespace moestro::cli {
namespace {

// For logs.
constexpr double kSecondsBetweenLines = 10;

}  // namespace

std::string HumanTime(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 3600) return absl::StrFormat("%d h %02d min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return absl::StrFormat("%d min %02d s", whole / 60, whole % 60);
  return absl::StrFormat("%d s", whole);
}

std::string ProgressLine(const batch::Progress& progress) {
  std::string line = absl::StrCat(progress.counts.done, " of ", progress.all, " lines");
  if (progress.counts.failed > 0) absl::StrAppend(&line, ", ", progress.counts.failed, " failed");
  if (progress.seconds > 0) {
    absl::StrAppendFormat(&line, ", %.1f tok/s", static_cast<double>(progress.generated_tokens) / progress.seconds);
  }
  if (progress.left) absl::StrAppend(&line, ", ", HumanTime(*progress.left), " left");
  if (!progress.waiting_for.empty()) absl::StrAppend(&line, "; waiting: ", progress.waiting_for);
  return line;
}

ProgressPrinter::ProgressPrinter() : terminal_(IsTerminal(StandardStream::kStderr)) {}

ProgressPrinter::~ProgressPrinter() {
  if (terminal_) std::fprintf(stderr, "\r\033[K");
}

void ProgressPrinter::Show(const batch::Progress& progress) {
  if (!terminal_ && progress.seconds - shown_at_ < kSecondsBetweenLines) return;
  shown_at_ = progress.seconds;
  std::fprintf(stderr, terminal_ ? "\r%s\033[K" : "%s\n", ProgressLine(progress).c_str());
  std::fflush(stderr);
}

}  // namespace moestro::cli
