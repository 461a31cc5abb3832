// The lock that whoever writes into a lease's pages holds. Robust: it survives the death of its holder.
#pragma once

#include <pthread.h>

#include "absl/status/status.h"

namespace moestro {

// Makes `mutex`, which lies in shared memory and nobody uses yet, a robust process-shared mutex. INTERNAL on failure.
absl::Status InitWriterLock(pthread_mutex_t& mutex);

// Takes the lock for the calling thread if no living thread of any process holds it. Never waits.
bool TryWriterLock(pthread_mutex_t& mutex);

// By the thread that took it.
void UnlockWriter(pthread_mutex_t& mutex);

}  // namespace moestro
