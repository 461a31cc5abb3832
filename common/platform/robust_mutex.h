// A mutex in shared memory that survives the death of its holder: what tells a living process or thread from a dead
// one.
#pragma once

#include <pthread.h>

#include "absl/status/status.h"

namespace moestro {

// Makes `mutex`, which lies in shared memory and nobody uses yet, a robust process-shared mutex. INTERNAL on failure.
absl::Status InitRobustMutex(pthread_mutex_t& mutex);

// Takes the mutex for the calling thread if no living thread of any process holds it. Never waits.
bool TryLockRobust(pthread_mutex_t& mutex);

// By the thread that took it.
void UnlockRobust(pthread_mutex_t& mutex);

}  // namespace moestro
