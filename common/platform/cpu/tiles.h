// Permission to use AMX tiles.
#pragma once

namespace moestro {

// Requests the permission for this process. Linux requires the request because a thread's state grows by 8 KiB at the
// first use. False if the system refuses: it is older than 5.16, forbids tiles, or a thread's alternate signal stack is
// too small for that state. Applies to all threads, running ones included. Thread-safe.
bool AllowTiles();

}  // namespace moestro
