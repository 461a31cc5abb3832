// A mutex in shared memory that survives its holder's death, and so distinguishes a living process or thread from a
// dead one.
#pragma once

#include <pthread.h>

#include "absl/status/status.h"

namespace moestro {

// Makes `mutex` a robust process-shared mutex. It is in shared memory and not yet in use. INTERNAL on failure.
absl::Status InitRobustMutex(pthread_mutex_t& mutex);

// Takes the mutex for the calling thread if no living thread of any process holds it. Never waits.
bool TryLockRobust(pthread_mutex_t& mutex);

// Called by the thread that took it.
void UnlockRobust(pthread_mutex_t& mutex);

}  // namespace moestro
