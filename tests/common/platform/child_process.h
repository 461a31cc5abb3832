// A forked process, for tests of what survives a process's death.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>

#include "common/base/check.h"

namespace moestro::testing {

// Fork only while the test has a single thread. The child is killed when the object or the parent dies.
class ChildProcess {
 public:
  // The child's ends of two pipes.
  class Parent {
   public:
    Parent(int from, int to) : from_(from), to_(to) {}
    // Sends one number to the parent.
    void Send(int64_t value) const { MOE_CHECK(write(to_, &value, sizeof(value)) == sizeof(value)); }
    // The next number from the parent; ends the process if the parent is gone.
    int64_t Receive() const {
      int64_t value = 0;
      if (read(from_, &value, sizeof(value)) != sizeof(value)) _exit(99);
      return value;
    }
    // Waits to be killed.
    int Sleep() const {
      Receive();
      return 98;
    }

   private:
    int from_;
    int to_;
  };

  // Runs `body` in the child; its result is the exit status.
  explicit ChildProcess(const std::function<int(const Parent&)>& body) {
    int up[2];
    int down[2];
    MOE_CHECK(pipe(up) == 0 && pipe(down) == 0);
    pid_ = fork();
    MOE_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(up[0]);
      close(down[1]);
      _exit(body(Parent(down[0], up[1])));
    }
    close(up[1]);
    close(down[0]);
    from_ = up[0];
    to_ = down[1];
  }
  ~ChildProcess() {
    Kill();
    close(from_);
    close(to_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int pid() const { return pid_; }

  // The next number from the child; -1 when it has ended.
  int64_t Receive() const {
    int64_t value = -1;
    return read(from_, &value, sizeof(value)) == sizeof(value) ? value : -1;
  }
  void Send(int64_t value) const { MOE_CHECK(write(to_, &value, sizeof(value)) == sizeof(value)); }

  // Waits for the end. Returns the exit status, or minus the signal that ended it.
  int Wait() {
    int status = 0;
    MOE_CHECK(pid_ > 0 && waitpid(pid_, &status, 0) == pid_);
    pid_ = 0;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  // Sends SIGKILL; returns when the process is gone. Does nothing if it is gone already.
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    Wait();
  }

 private:
  pid_t pid_ = 0;
  int from_ = -1;
  int to_ = -1;
};

}  // namespace moestro::testing
