#include "services/router/admission/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "services/router/access/retry_after.h"
#include "tests/services/router/fake_node.h"

namespace moestro::router {
namespace {

using Kind = AdmissionQueue::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// A request and its place.
struct Waiter {
  Waiter(AdmissionQueue& queue, const std::shared_ptr<Tenant>& owner, uint32_t tokens = 100, Kind kind = Kind::kShort)
      : tenant(owner->name()), request(queue, owner, tokens, kind) {
    LineUp();
  }
  void LineUp() {
    auto lined_up = request.LineUp();
    status = lined_up.status();
    if (lined_up.ok()) place.emplace(*std::move(lined_up));
  }
  bool IsFirst() const { return place && place->IsFirst(); }
  // It gets pages.
  void Admit() { place.reset(); }

  const std::string tenant;
  AdmissionQueue::Request request;
  absl::Status status;
  std::optional<AdmissionQueue::Request::Place> place;
};

class AdmissionQueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<Tenant> MakeTenant(const std::string& name, double weight = 1,
                                     const access::TenantLimits& limits = {}) {
    const access::KeyEntry key{.name = name, .weight = weight, .limits = limits};
    return std::make_shared<Tenant>(key, "secret", registry_, clock_);
  }

  // Admits all that may be admitted, in turn, and returns their tenants.
  static std::string AdmitAll(const std::vector<std::unique_ptr<Waiter>>& waiters) {
    std::string order;
    while (true) {
      const auto first = std::ranges::find_if(waiters, [](const auto& waiter) { return waiter->IsFirst(); });
      if (first == waiters.end()) return order;
      (*first)->Admit();
      order += (*first)->tenant;
    }
  }

  std::vector<std::unique_ptr<Waiter>> Flood(AdmissionQueue& queue, const std::shared_ptr<Tenant>& tenant, int count,
                                             uint32_t tokens = 100, Kind kind = Kind::kShort) {
    std::vector<std::unique_ptr<Waiter>> waiters;
    for (int i = 0; i < count; ++i) waiters.push_back(std::make_unique<Waiter>(queue, tenant, tokens, kind));
    return waiters;
  }

  void At(milliseconds delay, std::function<void()> happens) {
    clock_.on_sleep = [this, happens = std::move(happens), time = clock_.Now() + delay] {
      if (clock_.Now() == time) happens();
    };
  }
  // How long it waits for at most a second.
  RequestClock::Duration Waited(const Waiter& waiter) {
    const RequestClock::TimePoint begin = clock_.Now();
    waiter.place->Wait(clock_, seconds(1));
    return clock_.Now() - begin;
  }

  MetricsRegistry registry_{"router"};
  testing::FakeRequestClock clock_;
  const std::shared_ptr<Tenant> a_ = MakeTenant("a");
  const std::shared_ptr<Tenant> b_ = MakeTenant("b");
};

TEST_F(AdmissionQueueTest, OneTenantIsServedInOrderOfArrival) {
  AdmissionQueue queue(8);
  Waiter first(queue, a_, 1000), second(queue, a_, 1);
  EXPECT_FALSE(second.IsFirst());
  EXPECT_TRUE(first.IsFirst());
  EXPECT_EQ(queue.size(), 2u);
  first.Admit();
  EXPECT_TRUE(second.IsFirst());
  EXPECT_EQ(first.request.seniority(), 1u);
  EXPECT_EQ(second.request.seniority(), 2u);
  EXPECT_EQ(queue.size(), 1u);
}

TEST_F(AdmissionQueueTest, WhoeverIsNextIsWokenAndNobodyElse) {
  AdmissionQueue queue(8);
  Waiter first(queue, a_), second(queue, a_), third(queue, a_);
  ASSERT_TRUE(first.IsFirst());
  At(milliseconds(1030), [&] { first.Admit(); });
  EXPECT_EQ(Waited(third), seconds(1));
  EXPECT_EQ(Waited(second), milliseconds(30));
  EXPECT_TRUE(second.IsFirst());
  EXPECT_EQ(Waited(second), seconds(1));
  At(milliseconds(30), [&] { second.place.reset(); });
  EXPECT_EQ(Waited(third), milliseconds(30));
}

TEST_F(AdmissionQueueTest, TheHeadIsWokenWhenPagesComeBack) {
  AdmissionQueue queue(8);
  Waiter head(queue, a_), next(queue, a_);
  ASSERT_TRUE(head.IsFirst());
  At(milliseconds(30), [&] { queue.CountReturn(); });
  EXPECT_EQ(Waited(head), milliseconds(30));
  EXPECT_EQ(Waited(next), seconds(1));
}

TEST_F(AdmissionQueueTest, AFreePlaceWakesWhoeverMayHaveIt) {
  AdmissionQueue queue(8);
  queue.SetFair(true);
  queue.SetPlaces(2);
  auto running = std::make_unique<Waiter>(queue, a_);
  ASSERT_TRUE(running->IsFirst());
  running->Admit();
  const Waiter waiting(queue, a_);
  EXPECT_EQ(Waited(waiting), seconds(1));  // the last place is for another tenant
  At(milliseconds(30), [&] { running = nullptr; });
  EXPECT_EQ(Waited(waiting), milliseconds(30));
  EXPECT_TRUE(waiting.IsFirst());
}

TEST_F(AdmissionQueueTest, WhoLostItsPagesComesBackInFront) {
  AdmissionQueue queue(2);
  Waiter oldest(queue, a_), old(queue, a_);
  ASSERT_TRUE(oldest.IsFirst());
  oldest.Admit();
  ASSERT_TRUE(old.IsFirst());
  old.Admit();
  Waiter head(queue, b_), next(queue, b_);
  ASSERT_TRUE(head.IsFirst());
  old.LineUp();  // beyond the limit
  EXPECT_TRUE(old.IsFirst());
  oldest.LineUp();
  EXPECT_TRUE(oldest.IsFirst());
  EXPECT_FALSE(old.IsFirst() || head.IsFirst() || next.IsFirst());
  EXPECT_EQ(oldest.request.seniority(), 1u);
  oldest.Admit();
  old.Admit();
  EXPECT_TRUE(head.IsFirst());
}

TEST_F(AdmissionQueueTest, RefusesBeyondTheLimit) {
  AdmissionQueue queue(1);
  {
    const Waiter waiter(queue, a_);
    const Waiter refused(queue, a_);
    EXPECT_TRUE(absl::IsResourceExhausted(refused.status));
    EXPECT_THAT(std::string(refused.status.message()), HasSubstr("--queue-limit"));
    EXPECT_EQ(RetryAfterSeconds(refused.status), 5);
  }
  EXPECT_TRUE(Waiter(queue, a_).status.ok());
}

TEST_F(AdmissionQueueTest, WhoComesNextPassesAFlood) {
  AdmissionQueue queue(100);
  auto waiters = Flood(queue, a_, 6);
  ASSERT_TRUE(waiters[0]->IsFirst());
  waiters[0]->Admit();
  ASSERT_TRUE(waiters[1]->IsFirst());  // asks for pages: keeps its place
  waiters.push_back(std::make_unique<Waiter>(queue, b_));
  EXPECT_EQ(AdmitAll(waiters), "abaaaa");
}

// Or whoever comes next would wait until the thread of a request that it passes has looked.
TEST_F(AdmissionQueueTest, WhoeverLooksMakesNobodyElseTheHead) {
  AdmissionQueue queue(100);
  const auto running = Flood(queue, a_, 1);
  EXPECT_EQ(AdmitAll(running), "a");
  const auto waiters = Flood(queue, a_, 2);
  EXPECT_FALSE(waiters[1]->IsFirst());
  const Waiter next(queue, b_);
  EXPECT_TRUE(next.IsFirst());
  EXPECT_FALSE(waiters[0]->IsFirst());
}

TEST_F(AdmissionQueueTest, TokensAreSharedByWeight) {
  AdmissionQueue queue(1000);
  const auto heavy = MakeTenant("h", 3);
  auto waiters = Flood(queue, a_, 100);
  for (auto& waiter : Flood(queue, heavy, 100)) waiters.push_back(std::move(waiter));
  const std::string order = AdmitAll(waiters).substr(0, 80);
  EXPECT_NEAR(std::ranges::count(order, 'h'), 60, 1);
}

TEST_F(AdmissionQueueTest, LargeRequestsCountForMore) {
  AdmissionQueue queue(1000);
  auto waiters = Flood(queue, a_, 100, 500);
  for (auto& waiter : Flood(queue, b_, 100, 100)) waiters.push_back(std::move(waiter));
  const std::string order = AdmitAll(waiters).substr(0, 60);
  EXPECT_NEAR(std::ranges::count(order, 'a'), 10, 1);
}

// Or a generous max_tokens would cost as much as a long answer.
TEST_F(AdmissionQueueTest, WhatWasNotUsedIsCredited) {
  AdmissionQueue queue(1000);
  std::deque<std::unique_ptr<Waiter>> waiting;
  std::map<std::string, int> served;
  for (int i = 0; i < 100; ++i) waiting.push_back(std::make_unique<Waiter>(queue, a_, 8000));
  for (int i = 0; i < 100; ++i) waiting.push_back(std::make_unique<Waiter>(queue, b_, 200));
  for (int i = 0; i < 100; ++i) {  // one at a time, each uses 100
    const auto first = std::ranges::find_if(waiting, [](const auto& waiter) { return waiter->IsFirst(); });
    ASSERT_NE(first, waiting.end());
    ++served[(*first)->tenant];
    (*first)->Admit();
    (*first)->request.SetUsed(100);
    waiting.erase(first);
  }
  EXPECT_NEAR(served["a"], 50, 1);
}

// A request counts with a part of its answer only, so what it generates beyond counts as it comes.
TEST_F(AdmissionQueueTest, WhatALongAnswerUsesCounts) {
  AdmissionQueue queue(1000);
  Waiter running(queue, a_, 100);
  ASSERT_TRUE(running.IsFirst());
  running.Admit();
  for (uint32_t used = 100; used <= 100 + 3 * kAnswerPart; ++used) running.request.SetUsed(used);
  auto waiters = Flood(queue, a_, 100, 128);
  for (auto& waiter : Flood(queue, b_, 100, 128)) waiters.push_back(std::move(waiter));
  const std::string order = AdmitAll(waiters);
  EXPECT_NEAR(static_cast<double>(order.find('a')), 3.0 * kAnswerPart / 128, 2);
}

TEST_F(AdmissionQueueTest, NobodySavesUpForAFlood) {
  AdmissionQueue queue(1000);
  {
    const auto of_a = Flood(queue, a_, 50);  // b stays away
    EXPECT_EQ(AdmitAll(of_a).size(), 50u);
    for (const auto& waiter : of_a) waiter->request.SetUsed(100);
  }
  auto waiters = Flood(queue, a_, 20);
  for (auto& waiter : Flood(queue, b_, 20)) waiters.push_back(std::move(waiter));
  const std::string order = AdmitAll(waiters).substr(0, 20);
  EXPECT_NEAR(std::ranges::count(order, 'b'), 10, 1);
}

TEST_F(AdmissionQueueTest, RunningRequestsOfAKeyAreBounded) {
  AdmissionQueue queue(100);
  const auto few = MakeTenant("f", 1, {.running = 2});
  auto waiters = Flood(queue, few, 4);
  EXPECT_EQ(AdmitAll(waiters), "ff");
  waiters.push_back(std::make_unique<Waiter>(queue, b_));
  EXPECT_EQ(AdmitAll(waiters), "b");
  waiters[0]->LineUp();  // lost its pages: it still counts
  EXPECT_EQ(AdmitAll(waiters), "f");
  waiters.erase(waiters.begin());
  EXPECT_EQ(AdmitAll(waiters), "f");
}

TEST_F(AdmissionQueueTest, WaitingRequestsOfAKeyAreBounded) {
  AdmissionQueue queue(100);
  const auto few = MakeTenant("f", 1, {.waiting = 2});
  const auto waiters = Flood(queue, few, 3);
  EXPECT_TRUE(waiters[1]->status.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(waiters[2]->status));
  EXPECT_THAT(std::string(waiters[2]->status.message()), HasSubstr("key 'f'"));
  EXPECT_TRUE(RetryAfterSeconds(waiters[2]->status));
  EXPECT_EQ(few->metrics().refused_waiting.Value(), 1);
}

TEST_F(AdmissionQueueTest, AFloodLeavesRoomInTheLine) {
  AdmissionQueue queue(16);
  queue.SetFair(true);
  const auto of_a = Flood(queue, a_, 20);
  EXPECT_EQ(std::ranges::count_if(of_a, [](const auto& waiter) { return waiter->status.ok(); }), 8);
  const auto of_b = Flood(queue, b_, 20);
  EXPECT_EQ(std::ranges::count_if(of_b, [](const auto& waiter) { return waiter->status.ok(); }), 4);
  EXPECT_EQ(queue.size(), 12u);
}

TEST_F(AdmissionQueueTest, TheLastPlaceIsForATenantThatHasNone) {
  AdmissionQueue queue(100);
  queue.SetFair(true);
  queue.SetPlaces(3);
  auto waiters = Flood(queue, a_, 6);
  EXPECT_EQ(AdmitAll(waiters), "aa");
  waiters.push_back(std::make_unique<Waiter>(queue, b_));
  waiters.push_back(std::make_unique<Waiter>(queue, b_));
  EXPECT_EQ(AdmitAll(waiters), "b");  // at once
  waiters.erase(waiters.begin());     // one of a ends
  EXPECT_EQ(AdmitAll(waiters), "");   // two of three are in use, and both have one
  waiters.erase(waiters.begin());
  EXPECT_EQ(AdmitAll(waiters), "a");
}

TEST_F(AdmissionQueueTest, LongPromptsHavePlacesOfTheirOwn) {
  AdmissionQueue queue(100);
  queue.SetFair(true);
  queue.SetPlaces(2);
  const auto shorts = Flood(queue, a_, 3);
  EXPECT_EQ(AdmitAll(shorts), "a");
  const auto longs = Flood(queue, b_, 3, 100, Kind::kLong);
  EXPECT_EQ(AdmitAll(longs), "b");
}

TEST_F(AdmissionQueueTest, OnePlaceIsEnough) {
  AdmissionQueue queue(100);
  queue.SetFair(true);
  queue.SetPlaces(1);
  auto waiters = Flood(queue, a_, 2);
  EXPECT_EQ(AdmitAll(waiters), "a");
  waiters.erase(waiters.begin());
  EXPECT_EQ(AdmitAll(waiters), "a");
}

TEST_F(AdmissionQueueTest, WithOneTenantDecodesPlacesDoNotMatter) {
  AdmissionQueue queue(100);
  queue.SetPlaces(2);
  EXPECT_EQ(AdmitAll(Flood(queue, a_, 6)), "aaaaaa");
}

// Whatever happens, each request has one number, numbers ascend among new heads, the request with the lowest number in
// the line is its head, and everybody is served in the end.
TEST_F(AdmissionQueueTest, EverybodyIsServedInTheEnd) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    AdmissionQueue queue(64);
    queue.SetFair(below(2) == 0);
    queue.SetPlaces(below(5));
    const std::shared_ptr<Tenant> tenants[] = {
        MakeTenant("a"), MakeTenant("b", 4), MakeTenant("c", 0.25, {.running = 1}), MakeTenant("d", 1, {.waiting = 3})};
    std::vector<std::unique_ptr<Waiter>> waiting, running;
    std::map<const Waiter*, uint64_t> numbers;
    uint64_t last = 0;
    int left = 200;
    for (int step = 0; left > 0 || !waiting.empty() || !running.empty(); ++step) {
      ASSERT_LT(step, 100000);
      if (left > 0 && below(2) == 0) {
        --left;
        auto waiter = std::make_unique<Waiter>(queue, tenants[below(4)], 1 + below(1000),
                                               below(4) == 0 ? Kind::kLong : Kind::kShort);
        if (waiter->status.ok()) waiting.push_back(std::move(waiter));
      }
      const auto first = std::ranges::find_if(waiting, [](const auto& waiter) { return waiter->IsFirst(); });
      if (first != waiting.end()) {
        const uint64_t number = (*first)->request.seniority();
        const auto [known, is_new] = numbers.emplace(first->get(), number);
        EXPECT_EQ(known->second, number);
        EXPECT_TRUE(!is_new || number > last);
        last = std::max(last, number);
        for (const auto& other : waiting) {
          const auto numbered = numbers.find(other.get());
          EXPECT_TRUE(numbered == numbers.end() || numbered->second >= number);
        }
        if (below(3) > 0) {
          (*first)->Admit();
          running.push_back(std::move(*first));
          waiting.erase(first);
        }
      }
      if (!running.empty() && below(2) == 0) {
        const size_t which = below(static_cast<uint32_t>(running.size()));
        if (below(4) == 0) {
          running[which]->LineUp();
          waiting.push_back(std::move(running[which]));
        } else {
          running[which]->request.SetUsed(below(1000));
          numbers.erase(running[which].get());
        }
        running.erase(running.begin() + which);
      }
    }
    EXPECT_EQ(queue.size(), 0u);
  }
}

}  // namespace
}  // namespace moestro::router
