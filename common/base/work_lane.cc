#include "common/base/work_lane.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/exceptions.h"

namespace moestro {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{20};

// Of the calling thread: on Linux each has its own. Lowering a priority needs no right.
void StandBack(int niceness) {
  const sched_param ordinary{};
  sched_setscheduler(0, SCHED_OTHER, &ordinary);
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + niceness);
}

}  // namespace

WorkLane::WorkLane(int niceness) : niceness_(niceness), thread_([this] { Loop(); }) {}

WorkLane::~WorkLane() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::shared_ptr<WorkLane::Job> WorkLane::Add(std::function<void()> work) {
  auto job = std::make_shared<Job>(Job{.work = std::move(work)});
  MutexLock lock(mutex_);
  jobs_.push_back(job);
  changed_.notify_all();
  return job;
}

void WorkLane::Post(std::function<void()> work) { Add(std::move(work)); }

absl::Status WorkLane::Run(absl::FunctionRef<absl::Status()> work, const std::function<absl::Status()>& check) {
  absl::Status result;
  const std::shared_ptr<Job> job = Add([&] { result = CatchExceptions(work); });
  MutexLock lock(mutex_);
  while (!job->done) {
    changed_.wait_for(lock, kCheckInterval);
    if (job->begun) continue;
    lock.unlock();
    absl::Status status = check();
    lock.lock();
    if (status.ok() || job->begun) continue;
    std::erase(jobs_, job);
    return status;
  }
  return result;
}

void WorkLane::Loop() {
  if (niceness_ > 0) StandBack(niceness_);
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && jobs_.empty()) changed_.wait(lock);
    if (stopping_) return;
    const std::shared_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    job->begun = true;
    lock.unlock();
    job->work();
    job->work = nullptr;  // before its caller goes on, with what it refers to
    lock.lock();
    job->done = true;
    changed_.notify_all();
  }
}

}  // namespace moestro
