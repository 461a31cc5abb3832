#include "loadtest/workloads/batch.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace moestro::loadtest {
namespace {

constexpr double kSigma = 1;
constexpr int64_t kMaxLength = int64_t{1} << 20;  // more is an error in the file

// The share of a standard normal distribution below z.
double Below(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// The average of a log-normal distribution that is cut at `longest`.
double CutAverage(double mu, double longest) {
  const double cut = (std::log(longest) - mu) / kSigma;
  return std::exp(mu + kSigma * kSigma / 2) * Below(cut - kSigma) / Below(cut);
}

// The argument in [low, high] at which the ascending `f` is `value`.
template <typename Function>
double Solve(double low, double high, double value, const Function& f) {
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) < value ? low : high) = middle;
  }
  return (low + high) / 2;
}

// 30: from there on the share below the cut is too small for a double. The average is then 0.97 of the longest.
double MuOf(double average, double longest) {
  return Solve(0, std::log(longest) + 30, average, [&](double mu) { return CutAverage(mu, longest); });
}

}  // namespace

CutLogNormal::CutLogNormal(double average, int64_t longest)
    : longest_(longest), mu_(MuOf(average, static_cast<double>(longest))) {}

int64_t CutLogNormal::Draw(Engine& engine) const {
  const double top = std::log(static_cast<double>(longest_));
  const double share = std::uniform_real_distribution<double>()(engine) * Below((top - mu_) / kSigma);
  const double drawn =
      std::exp(Solve(mu_ - 40 * kSigma, top, share, [&](double x) { return Below((x - mu_) / kSigma); }));
  return std::clamp(static_cast<int64_t>(std::lround(drawn)), int64_t{1}, longest_);
}

std::vector<int64_t> DrawLengths(const BatchWorkload& workload, int count, uint64_t seed) {
  const CutLogNormal lengths(workload.average, workload.longest);
  Engine engine(seed);
  std::vector<int64_t> drawn;
  for (int i = 0; i < count; ++i) drawn.push_back(lengths.Draw(engine));
  return drawn;
}

absl::StatusOr<std::vector<int64_t>> ReadLengths(std::string_view text, int count) {
  std::vector<int64_t> all;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line.front() == '#') continue;
    int64_t length = 0;
    if (!absl::SimpleAtoi(line, &length) || length < 1 || length > kMaxLength) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": must be a number of tokens from 1 to ", kMaxLength));
    }
    all.push_back(length);
  }
  if (all.empty()) return absl::InvalidArgumentError("has no length");
  std::vector<int64_t> lengths;
  for (int i = 0; i < count; ++i) lengths.push_back(all[static_cast<size_t>(i) % all.size()]);
  return lengths;
}

std::vector<Request> MakeBatchRequests(std::vector<int64_t> lengths, int64_t generate, bool padded, int64_t vocab_size,
                                       uint64_t seed) {
  if (padded && !lengths.empty()) std::ranges::fill(lengths, std::ranges::max(lengths));
  PromptMaker prompts(vocab_size, seed);
  std::vector<Request> requests;
  for (const int64_t length : lengths) {
    Request request;
    request.group = "batch";
    request.tag = static_cast<int64_t>(requests.size());
    request.token_ids = prompts.Random(length);
    request.max_tokens = static_cast<uint32_t>(generate);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace moestro::loadtest
