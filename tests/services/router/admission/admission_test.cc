#include "services/router/admission/admission.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

namespace moestro::router {
namespace {

TEST(AdmissionQueueTest, FirstComeFirstServed) {
  AdmissionQueue queue(8);
  std::optional<AdmissionQueue::Place> first(*queue.Enter(queue.NextArrival()));
  const AdmissionQueue::Place second = *queue.Enter(queue.NextArrival());
  EXPECT_TRUE(first->IsFirst());
  EXPECT_FALSE(second.IsFirst());
  first.reset();
  EXPECT_TRUE(second.IsFirst());
  EXPECT_EQ(queue.size(), 1u);
}

TEST(AdmissionQueueTest, WhoLostItsPagesComesBackInFront) {
  AdmissionQueue queue(1);
  const uint64_t old_arrival = queue.NextArrival();
  const AdmissionQueue::Place newer = *queue.Enter(queue.NextArrival());
  const AdmissionQueue::Place old = queue.EnterAgain(old_arrival);  // beyond the limit
  EXPECT_TRUE(old.IsFirst());
  EXPECT_FALSE(newer.IsFirst());
}

TEST(AdmissionQueueTest, RefusesBeyondTheLimit) {
  AdmissionQueue queue(1);
  {
    const AdmissionQueue::Place place = *queue.Enter(queue.NextArrival());
    EXPECT_TRUE(absl::IsResourceExhausted(queue.Enter(queue.NextArrival()).status()));
  }
  EXPECT_TRUE(queue.Enter(queue.NextArrival()).ok());
}

}  // namespace
}  // namespace moestro::router
