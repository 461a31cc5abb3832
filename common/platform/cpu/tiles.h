// Permission to use AMX tiles.
#pragma once

namespace moestro {

// Asks the operating system to let this process use tiles, which Linux has every process ask for: a thread's state
// grows by 8 KiB when it first uses them. False if it refuses: it is older than 5.16, forbids it, or a thread's
// alternate signal stack is too small for that state. Holds for all threads, also those that run already. Thread-safe.
bool AllowTiles();

}  // namespace moestro
