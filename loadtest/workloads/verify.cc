#include "loadtest/workloads/verify.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "loadtest/workloads/prompts.h"

namespace moestro::loadtest {

std::vector<Request> MakeVerifyRequests(const VerifyOptions& options) {
  PromptMaker prompts(options.vocab_size, options.seed);
  Engine engine(options.seed + 1);
  const auto with_chance = [&](double share) { return std::bernoulli_distribution(share)(engine); };
  const auto up_to = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(engine); };
  std::vector<Request> requests;
  for (int i = 0; i < options.requests; ++i) {
    const int64_t prompt = std::min(options.prompt.Draw(engine), options.max_context_tokens - 1);
    const int64_t output = std::min(options.output.Draw(engine), options.max_context_tokens - prompt);
    const bool prefixed = with_chance(options.prefixed_share) && options.prefixes > 0;
    const std::string prefix = prefixed ? absl::StrCat("prefix ", up_to(options.prefixes - 1)) : "";
    Request request;
    request.group = "greedy";
    request.tag = i;
    request.token_ids = prompts.WithPrefix(prefix, prefixed ? up_to(prompt) : 0, prompt);
    request.max_tokens = static_cast<uint32_t>(output);
    if (with_chance(options.sampled_share)) {
      request.group = "sampled";
      request.temperature = 0.8F;
      request.seed = options.seed + static_cast<uint64_t>(i);
    }
    if (with_chance(options.cancelled_share)) {
      request.group = "cancelled";
      request.cancel_after_tokens = static_cast<uint32_t>(up_to(output));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Request> MakeAloneRequests(const std::vector<Request>& requests, const std::vector<Record>& crowded) {
  std::vector<Request> alone;
  for (const Record& record : crowded) {
    if (record.tokens.empty()) continue;
    Request request = requests[static_cast<size_t>(record.tag)];
    request.group = "alone";
    request.cancel_after_tokens.reset();
    // A request that was cut short is compared up to its last token. A shorter run does not change earlier tokens.
    if (!record.completed()) request.max_tokens = static_cast<uint32_t>(record.tokens.size());
    alone.push_back(std::move(request));
  }
  return alone;
}

Verdict CompareTokens(const std::vector<Record>& crowded, const std::vector<Record>& alone) {
  std::map<int64_t, const Record*> second;
  for (const Record& record : alone) {
    if (record.completed()) second[record.tag] = &record;
  }
  Verdict verdict;
  for (const Record& first : crowded) {
    if (first.tokens.empty()) continue;
    const auto it = second.find(first.tag);
    if (it == second.end()) {
      ++verdict.not_compared;
      continue;
    }
    const std::vector<int32_t>& expected = it->second->tokens;
    ++(first.completed() ? verdict.compared : verdict.prefixes_compared);
    verdict.tokens += static_cast<int64_t>(first.tokens.size());
    const auto [mine, theirs] = std::ranges::mismatch(first.tokens, expected);
    const auto position = static_cast<size_t>(mine - first.tokens.begin());
    if (mine != first.tokens.end() && theirs != expected.end()) {
      verdict.mismatches.push_back({first.tag, position, absl::StrCat("token ", *mine, ", alone ", *theirs)});
    } else if (mine != first.tokens.end() || (first.completed() && theirs != expected.end())) {
      verdict.mismatches.push_back(
          {first.tag, position, absl::StrCat(first.tokens.size(), " tokens, alone ", expected.size())});
    }
  }
  return verdict;
}

}  // namespace moestro::loadtest
