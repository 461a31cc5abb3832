#include "common/platform/memory_fault.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>

#include "common/base/mutex.h"

namespace moestro {
namespace {

struct Watched {
  std::atomic<uintptr_t> begin{0};  // 0: free; written last, because the handler reads it
  uintptr_t end = 0;
  int fd = -1;
  char name[NAME_MAX + 1] = {};
};

Watched g_watched[64];
Mutex g_mutex;  // held to change g_watched
std::atomic<int> g_exit_code{0};
std::atomic<bool> g_ending{false};

const Watched* Find(uintptr_t address) {
  for (const Watched& watched : g_watched) {
    const uintptr_t begin = watched.begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address < watched.end) return &watched;
  }
  return nullptr;
}

void Say(const char* text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;  // there is no other way to report it
}

// Calls only async-signal-safe functions.
void OnBusError(int signal_number, siginfo_t* info, void*) {
  const bool by_kernel = info->si_code > 0;
  const Watched* const watched = by_kernel ? Find(reinterpret_cast<uintptr_t>(info->si_addr)) : nullptr;
  if (watched == nullptr) {
    signal(signal_number, SIG_DFL);
    if (!by_kernel) raise(signal_number);
    return;  // retries the instruction, which faults again
  }
  const bool marked = fchmod(watched->fd, kDamagedMode) == 0;
  if (g_ending.exchange(true)) {  // another thread reports it
    for (;;) pause();
  }
  Say("memory fault in ");
  Say(watched->name);
  Say(info->si_code == BUS_MCEERR_AR ? ": an uncorrectable error of the machine's memory, see the kernel's log"
                                     : ": its memory is missing; it was truncated, or /dev/shm was full");
  Say(marked ? "; it is marked as damaged and will be replaced\n" : "; it cannot be marked as damaged: remove it\n");
  _exit(g_exit_code.load());
}

}  // namespace

void ExitOnMemoryFault(int exit_code) {
  g_exit_code = exit_code;
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

void WatchMapping(const uint8_t* data, int64_t bytes, int fd, const std::string& name) {
  const MutexLock lock(g_mutex);
  for (Watched& watched : g_watched) {
    if (watched.begin.load(std::memory_order_relaxed) != 0) continue;
    watched.end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
    watched.fd = fd;
    watched.name[name.copy(watched.name, NAME_MAX)] = 0;
    watched.begin.store(reinterpret_cast<uintptr_t>(data), std::memory_order_release);
    return;
  }
}

void UnwatchMapping(const uint8_t* data) {
  const MutexLock lock(g_mutex);
  for (Watched& watched : g_watched) {
    if (watched.begin.load(std::memory_order_relaxed) == reinterpret_cast<uintptr_t>(data)) watched.begin = 0;
  }
}

}  // namespace moestro
