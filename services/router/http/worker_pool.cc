#include "services/router/http/worker_pool.h"

#include <system_error>
#include <utility>

namespace moestro::router {

WorkerPool::~WorkerPool() {
  std::list<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

bool WorkerPool::Run(std::function<void()> work) {
  MutexLock lock(mutex_);
  if (stopping_) return false;
  if (queue_.size() == idle_) {
    if (threads_.size() == limit_) return false;
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      return false;
    }
    ++idle_;
  }
  queue_.push_back(std::move(work));
  changed_.notify_one();
  return true;
}

void WorkerPool::Work() {
  MutexLock lock(mutex_);
  while (true) {
    while (queue_.empty() && !stopping_) changed_.wait(lock);
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    --idle_;
    lock.unlock();
    work();
    work = nullptr;  // what it holds goes before the thread counts as idle
    lock.lock();
    ++idle_;
  }
}

}  // namespace moestro::router
