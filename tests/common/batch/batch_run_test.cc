#include "common/batch/batch_run.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/common/batch/batch_fixture.h"

namespace moestro::batch {
namespace {

using ::testing::HasSubstr;

// Answers with `reply`, and remembers.
class FakeExecutor final : public Executor {
 public:
  using Answer = std::function<Reply(const Request&, int tries)>;
  explicit FakeExecutor(Answer answer) : answer_(std::move(answer)) {}

  Reply Execute(const Request& request) override {
    int tries = 0;
    {
      std::lock_guard lock(mutex_);
      most_ = std::max(most_, ++running_);
      tries = ++tries_[request.custom_id];
    }
    Reply reply = answer_(request, tries);
    std::lock_guard lock(mutex_);
    --running_;
    return reply;
  }
  void Cancel() override {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
  }

  int most() {
    std::lock_guard lock(mutex_);
    return most_;
  }
  bool cancelled() {
    std::lock_guard lock(mutex_);
    return cancelled_;
  }
  std::map<std::string, int> tries() {
    std::lock_guard lock(mutex_);
    return tries_;
  }

 private:
  const Answer answer_;
  std::mutex mutex_;
  int running_ = 0;
  int most_ = 0;
  bool cancelled_ = false;
  std::map<std::string, int> tries_;
};

Reply Good(const Request& request, int /*tries*/) {
  return {.status = 200, .body = R"({"id": ")" + request.custom_id + R"(", "usage": {"completion_tokens": 2}})"};
}
Reply Busy(const char* why) {
  return {.status = 503, .body = R"({"error": {"message": ")" + std::string(why) + R"("}})"};
}

class BatchRunTest : public BatchTest {
 protected:
  absl::Status Run(const RequestFile& file, Journal& journal, FakeExecutor& executor, const RunOptions& options = {}) {
    BatchRun run(file, journal, executor, options);
    return run.Run([&](const Progress& progress) { last_ = progress; });
  }
  Progress last_;
};

TEST_F(BatchRunTest, AnswersEveryRequestOnceAndNoMoreThanAllowedAtOnce) {
  const auto file = MakeRequests(100);
  const auto journal = OpenJournal(*file);
  FakeExecutor executor(Good);
  ASSERT_TRUE(Run(*file, *journal, executor, {.in_flight = 7}).ok());
  EXPECT_LE(executor.most(), 7);
  EXPECT_EQ(journal->counts().done, 100u);
  EXPECT_EQ(executor.tries().size(), 100u);
  EXPECT_EQ(last_.counts.done, 100u);
  EXPECT_EQ(last_.generated_tokens, 200u);
  EXPECT_EQ(last_.left, 0);
}

TEST_F(BatchRunTest, GoesOnWithWhatTheJournalDoesNotHave) {
  const auto file = MakeRequests(5);
  const auto journal = OpenJournal(*file);
  ASSERT_TRUE(journal->Append(1, {.line = "{}"}).ok());
  ASSERT_TRUE(journal->Append(4, {.line = "{}"}).ok());
  FakeExecutor executor(Good);
  ASSERT_TRUE(Run(*file, *journal, executor).ok());
  const std::map<std::string, int> once = {{"0", 1}, {"2", 1}, {"3", 1}};
  EXPECT_EQ(executor.tries(), once);
  EXPECT_EQ(*journal->Read(1), "{}");
  ASSERT_TRUE(Run(*file, *journal, executor).ok());  // nothing is left
  EXPECT_EQ(executor.tries(), once);
}

// A process that ends while requests are under way, as the journal shows it.
class ProcessThatEnds {
 public:
  ProcessThatEnds(Journal& journal, std::initializer_list<size_t> under_way) {
    for (const size_t index : under_way) EXPECT_TRUE(journal.Begin(index, under_way.size() == 1).ok());
  }
};

TEST_F(BatchRunTest, WhatWasUnderWayWhenAProcessEndedRunsFirstAndAlone) {
  const auto file = MakeRequests(9);
  ProcessThatEnds(*OpenJournal(*file), {2, 4, 5});
  const auto journal = OpenJournal(*file);
  std::mutex mutex;
  std::vector<std::string> order;
  std::atomic<int> running{0};
  FakeExecutor executor([&](const Request& request, int tries) {
    const bool alone = ++running == 1;
    {
      std::lock_guard lock(mutex);
      order.push_back(request.custom_id);
      EXPECT_TRUE(alone || order.size() > 3) << request.custom_id;
    }
    std::this_thread::yield();  // the others try to come in
    --running;
    return Good(request, tries);
  });
  Mutex alone;
  ASSERT_TRUE(Run(*file, *journal, executor, {.in_flight = 4, .alone = &alone}).ok());
  ASSERT_EQ(order.size(), 9u);
  order.resize(3);
  EXPECT_THAT(order, ::testing::ElementsAre("2", "4", "5"));
  EXPECT_EQ(journal->counts().failed, 0u);
}

// A killed process, however often, does not fail what was under way beside others.
TEST_F(BatchRunTest, WhatWasAloneAtTwoDeathsFails) {
  const auto file = MakeRequests(4);
  for (const auto& under_way : {std::initializer_list<size_t>{0, 1, 2}, {0, 1, 2}, {0, 1, 2}, {1}, {2}, {1}}) {
    ProcessThatEnds(*OpenJournal(*file), under_way);
  }
  const auto journal = OpenJournal(*file);
  FakeExecutor executor(Good);
  Mutex alone;
  ASSERT_TRUE(Run(*file, *journal, executor, {.alone = &alone}).ok());
  const std::map<std::string, int> tried = {{"0", 1}, {"2", 1}, {"3", 1}};
  EXPECT_EQ(executor.tries(), tried);
  EXPECT_EQ(journal->counts().failed, 1u);
  EXPECT_FALSE(journal->Succeeded(1));
  EXPECT_THAT(*journal->Read(1), AllOf(HasSubstr(R"("code":"process_ended")"), HasSubstr(R"("status_code":500)")));
}

// So what one run's request does to the process is not blamed on another's.
TEST_F(BatchRunTest, OneOfAllRunsIsAlone) {
  const auto file = MakeRequests(1);
  ProcessThatEnds(*OpenJournal(*file), {0});
  const auto journal = OpenJournal(*file);
  FakeExecutor executor(Good);
  Mutex alone;
  MutexLock another(alone);
  BatchRun run(*file, *journal, executor, {.alone = &alone});
  std::thread thread([&] { EXPECT_TRUE(run.Run([](const Progress&) {}).ok()); });
  const std::string before = Read(Path("out.journal"));
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_TRUE(executor.tries().empty());
  EXPECT_EQ(Read(Path("out.journal")), before) << "it is not under way while it waits";
  another.unlock();
  thread.join();
  EXPECT_EQ(executor.tries().size(), 1u);
}

TEST_F(BatchRunTest, AProcessThatEndsInOrderLeavesNoSuspects) {
  const auto file = MakeRequests(3);
  {
    const auto journal = OpenJournal(*file);
    BatchRun* running = nullptr;
    FakeExecutor executor([&](const Request& request, int tries) {
      if (request.custom_id == "1") running->Stop();
      return Good(request, tries);
    });
    Mutex alone;
    BatchRun run(*file, *journal, executor, {.in_flight = 1, .alone = &alone});
    running = &run;
    EXPECT_TRUE(absl::IsCancelled(run.Run([](const Progress&) {})));
  }
  EXPECT_TRUE(OpenJournal(*file)->Suspects().empty());
}

// A server that takes requests and answers none, as one that is stopped or hangs does.
TEST_F(BatchRunTest, GivesUpOnAServerThatTakesRequestsAndAnswersNone) {
  class Silent final : public Executor {
   public:
    Reply Execute(const Request&) override {
      MutexLock lock(mutex_);
      // So that the test ends without the wanted end, too.
      changed_.wait_for(lock, std::chrono::seconds(10),
                        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return cancelled_; });
      return {.status = 400, .body = "{}"};
    }
    void Cancel() override {
      MutexLock lock(mutex_);
      cancelled_ = true;
      changed_.notify_all();
    }

   private:
    Mutex mutex_;
    Condition changed_;
    bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  };
  const auto file = MakeRequests(1);
  const auto journal = OpenJournal(*file);
  Silent executor;
  BatchRun run(*file, *journal, executor, {.patience = std::chrono::seconds(1)});
  EXPECT_TRUE(absl::IsUnavailable(run.Run([](const Progress&) {})));
  EXPECT_EQ(journal->counts().done, 0u);
}

TEST_F(BatchRunTest, TriesAgainWhatIsTransient) {
  const auto file = MakeRequests(3);
  const auto journal = OpenJournal(*file);
  FakeExecutor executor([](const Request& request, int tries) {
    if (request.custom_id == "1" && tries < 3) return Busy("decode does not answer");
    if (request.custom_id == "2" && tries < 2) return Reply{.failure = "connection refused"};
    return Good(request, tries);
  });
  ASSERT_TRUE(Run(*file, *journal, executor).ok());
  EXPECT_EQ(executor.tries()["1"], 3);
  EXPECT_EQ(executor.tries()["2"], 2);
  EXPECT_EQ(journal->counts().failed, 0u);
}

TEST_F(BatchRunTest, AnErrorOfTheServerBecomesTheResultAfterThreeTries) {
  const auto file = MakeRequests(2);
  const auto journal = OpenJournal(*file);
  FakeExecutor executor([](const Request& request, int tries) {
    if (request.custom_id == "0") return Reply{.status = 500, .body = R"({"error": {"message": "bad"}})"};
    if (tries == 1) return Reply{.status = 500};
    return Good(request, tries);
  });
  ASSERT_TRUE(Run(*file, *journal, executor).ok());
  EXPECT_EQ(executor.tries()["0"], 3);
  EXPECT_EQ(executor.tries()["1"], 2);
  EXPECT_EQ(journal->counts().failed, 1u);
  EXPECT_THAT(*journal->Read(0), HasSubstr("\"status_code\":500"));
}

TEST_F(BatchRunTest, ARefusedCallerStopsAtOnceAndRecordsNothing) {
  const auto file = MakeRequests(10);
  const auto journal = OpenJournal(*file);
  FakeExecutor executor(
      [](const Request&, int) { return Reply{.status = 401, .body = R"({"error": {"message": "no such key"}})"}; });
  const absl::Status status = Run(*file, *journal, executor, {.in_flight = 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such key"));
  EXPECT_EQ(journal->counts().done, 0u);
  EXPECT_EQ(executor.tries().size(), 1u);
}

TEST_F(BatchRunTest, StopsAndKeepsWhatIsDone) {
  const auto file = MakeRequests(10);
  const auto journal = OpenJournal(*file);
  BatchRun* running = nullptr;
  FakeExecutor executor([&](const Request& request, int tries) {
    if (request.custom_id == "3") running->Stop();
    return Good(request, tries);
  });
  BatchRun run(*file, *journal, executor, {.in_flight = 1});
  running = &run;
  EXPECT_EQ(run.Run([](const Progress&) {}).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(executor.cancelled());
  EXPECT_EQ(journal->counts().done, 3u);
}

TEST_F(BatchRunTest, StopEndsThePauseBeforeAnotherTry) {
  const auto file = MakeRequests(1);
  const auto journal = OpenJournal(*file);
  FakeExecutor executor([](const Request&, int) {
    Reply reply = Busy("decode restarts");
    reply.retry_after = std::chrono::hours(1);
    return reply;
  });
  BatchRun run(*file, *journal, executor, {.in_flight = 1});
  std::string waiting;
  EXPECT_EQ(run.Run([&](const Progress& progress) {
                 if (progress.waiting_for.empty()) return;
                 waiting = progress.waiting_for;
                 run.Stop();
               })
                .code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(waiting, "HTTP 503: decode restarts");
}

TEST_F(BatchRunTest, AFileThatChangesEndsTheRun) {
  const auto file = MakeRequests(2);
  const auto journal = OpenJournal(*file);
  std::fstream(Path("in.jsonl"), std::ios::in | std::ios::out) << "{ ";
  FakeExecutor executor(Good);
  EXPECT_EQ(Run(*file, *journal, executor, {.in_flight = 1}).code(), absl::StatusCode::kDataLoss);
}

TEST_F(BatchRunTest, AnExceptionEndsTheRun) {
  const auto file = MakeRequests(2);
  const auto journal = OpenJournal(*file);
  FakeExecutor executor([](const Request&, int) -> Reply { throw std::bad_alloc(); });
  EXPECT_EQ(Run(*file, *journal, executor).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace moestro::batch
