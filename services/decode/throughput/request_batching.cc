#include "services/decode/throughput/request_batching.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace moestro::decode {

MicroBatches CutIntoMicroBatches(std::span<const int64_t> tokens, const BatchingLimits& limits) {
  std::vector<int32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](int32_t i) { return tokens[static_cast<size_t>(i)]; });

  using Open = std::pair<int64_t, size_t>;  // tokens of a micro-batch that is not full, and which it is
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open;
  MicroBatches cut;
  cut.batches.resize(static_cast<size_t>(limits.micro_batches));
  for (size_t i = 0; i < cut.batches.size(); ++i) open.emplace(0, i);
  for (const int32_t sequence : order) {
    const int64_t wanted = tokens[static_cast<size_t>(sequence)];
    // Where the emptiest has no room, none has.
    if (open.empty() || open.top().first + wanted > limits.tokens) {
      cut.left_over.push_back(sequence);
      continue;
    }
    const auto [used, index] = open.top();
    open.pop();
    cut.batches[index].push_back(sequence);
    if (std::ssize(cut.batches[index]) < limits.sequences) open.emplace(used + wanted, index);
  }
  std::erase_if(cut.batches, [](const std::vector<int32_t>& batch) { return batch.empty(); });
  return cut;
}

}  // namespace moestro::decode
