// Which sequences share a micro-batch: the published algorithm, and what it promises, on random queues.
#include "services/decode/throughput/request_batching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace moestro::decode {
namespace {

// "MoE-Lightning", Algorithm 2, line by line, with generation lengths of 0: the lengths count them already.
// Micro-batches that are not full when the queue ends are handed out, too.
MicroBatches Transcribed(std::span<const int64_t> tokens, const BatchingLimits& limits) {
  std::vector<std::vector<int32_t>> partitions(static_cast<size_t>(limits.micro_batches));
  std::vector<int64_t> sums(partitions.size());
  std::vector<int32_t> queue(tokens.size());
  std::iota(queue.begin(), queue.end(), 0);
  std::ranges::stable_sort(queue, std::greater(), [&](int32_t i) { return tokens[static_cast<size_t>(i)]; });
  MicroBatches result;
  for (const int32_t request : queue) {
    if (partitions.empty()) {
      result.left_over.push_back(request);
      continue;
    }
    const auto index = static_cast<size_t>(std::ranges::min_element(sums) - sums.begin());
    if (sums[index] + tokens[static_cast<size_t>(request)] > limits.tokens) {
      result.left_over.push_back(request);
      continue;
    }
    partitions[index].push_back(request);
    sums[index] += tokens[static_cast<size_t>(request)];
    if (std::ssize(partitions[index]) == limits.sequences) {
      result.batches.push_back(partitions[index]);
      partitions.erase(partitions.begin() + static_cast<int64_t>(index));
      sums.erase(sums.begin() + static_cast<int64_t>(index));
    }
  }
  for (const std::vector<int32_t>& rest : partitions) {
    if (!rest.empty()) result.batches.push_back(rest);
  }
  return result;
}

std::vector<std::vector<int32_t>> Sorted(std::vector<std::vector<int32_t>> batches) {
  std::ranges::sort(batches);
  return batches;
}

struct Queue {
  std::vector<int64_t> tokens;
  BatchingLimits limits;
};

Queue RandomQueue(std::mt19937& random) {
  const auto upTo = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
  Queue queue;
  queue.tokens.resize(static_cast<size_t>(upTo(80)));
  const int64_t longest = upTo(3000);
  for (int64_t& tokens : queue.tokens) tokens = upTo(longest);
  queue.limits = {.micro_batches = upTo(12), .sequences = upTo(16), .tokens = upTo(4 * longest)};
  return queue;
}

TEST(RequestBatching, IsThePublishedAlgorithm) {
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const Queue queue = RandomQueue(random);
    const MicroBatches cut = CutIntoMicroBatches(queue.tokens, queue.limits);
    const MicroBatches expected = Transcribed(queue.tokens, queue.limits);
    ASSERT_EQ(Sorted(cut.batches), Sorted(expected.batches)) << i;
    ASSERT_EQ(cut.left_over, expected.left_over) << i;
  }
}

TEST(RequestBatching, KeepsItsLimitsAndLosesNothing) {
  std::mt19937 random(2);
  for (int i = 0; i < 10'000; ++i) {
    const Queue queue = RandomQueue(random);
    const MicroBatches cut = CutIntoMicroBatches(queue.tokens, queue.limits);
    std::vector<int32_t> all = cut.left_over;
    std::vector<int64_t> open;  // tokens of micro-batches that are not full
    ASSERT_LE(std::ssize(cut.batches), queue.limits.micro_batches);
    for (const std::vector<int32_t>& batch : cut.batches) {
      int64_t tokens = 0;
      for (const int32_t request : batch) tokens += queue.tokens[static_cast<size_t>(request)];
      ASSERT_FALSE(batch.empty());
      ASSERT_LE(std::ssize(batch), queue.limits.sequences);
      ASSERT_LE(tokens, queue.limits.tokens);
      if (std::ssize(batch) < queue.limits.sequences) open.push_back(tokens);
      all.insert(all.end(), batch.begin(), batch.end());
    }
    if (std::ssize(cut.batches) < queue.limits.micro_batches) open.push_back(0);
    if (!open.empty()) {
      ASSERT_LE(std::ranges::max(open) - std::ranges::min(open), std::ranges::max(queue.tokens)) << i;
    }
    std::ranges::sort(all);
    std::vector<int32_t> every(queue.tokens.size());
    std::iota(every.begin(), every.end(), 0);
    ASSERT_EQ(all, every) << i;
  }
}

TEST(RequestBatching, PutsTheLongestBesideTheShortest) {
  const std::vector<int64_t> tokens = {1, 9, 3, 7, 5, 5};
  const MicroBatches cut = CutIntoMicroBatches(tokens, {.micro_batches = 3, .sequences = 2, .tokens = 100});
  EXPECT_EQ(Sorted(cut.batches), Sorted({{1, 0}, {3, 2}, {4, 5}}));
  EXPECT_TRUE(cut.left_over.empty());
}

}  // namespace
}  // namespace moestro::decode
