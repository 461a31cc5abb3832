#include "common/platform/robust_mutex.h"

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "common/base/check.h"

namespace moestro {

absl::Status InitRobustMutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  if (pthread_mutexattr_init(&attributes) != 0) return absl::InternalError("pthread_mutexattr_init");
  const absl::Cleanup destroy = [&] { pthread_mutexattr_destroy(&attributes); };
  if (pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) != 0 ||
      pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) != 0 ||
      pthread_mutex_init(&mutex, &attributes) != 0) {
    return absl::InternalError("this system has no robust process-shared mutexes");
  }
  return absl::OkStatus();
}

bool TryLockRobust(pthread_mutex_t& mutex) {
  const int error = pthread_mutex_trylock(&mutex);
  // The holder died. The next holder knows what may be half done.
  if (error == EOWNERDEAD) MOE_CHECK(pthread_mutex_consistent(&mutex) == 0);
  return error == 0 || error == EOWNERDEAD;
}

void UnlockRobust(pthread_mutex_t& mutex) { MOE_CHECK(pthread_mutex_unlock(&mutex) == 0); }

}  // namespace moestro
