#include "services/cli/client/interrupt.h"

#include <csignal>
#include <utility>

namespace moestro::cli {

namespace {

sigset_t Interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

void BlockInterrupts() {
  const sigset_t signals = Interrupts();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

InterruptWatcher::InterruptWatcher(std::function<void()> on_interrupt) {
  thread_ = std::thread([this, interrupt = Interrupts(), callback = std::move(on_interrupt)] {
    constexpr timespec kPoll{.tv_sec = 0, .tv_nsec = 100'000'000};  // bounds the time of the destructor
    while (!stop_) {
      if (sigtimedwait(&interrupt, nullptr, &kPoll) == SIGINT) callback();
    }
  });
}

InterruptWatcher::~InterruptWatcher() {
  stop_ = true;
  thread_.join();
}

}  // namespace moestro::cli
