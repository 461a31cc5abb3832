// Ends a process that touches mapped memory without backing (SIGBUS). Causes: an uncorrectable memory error of the
// machine, a truncated object, a full /dev/shm. The page stays lost, so a restarted process would fault again. The
// handler therefore marks the object, and nobody opens it any more.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace moestro {

// The permissions of a damaged shared-memory object. A signal handler can write nothing else that everybody can surely
// read: the object's own bytes may be in the lost page.
inline constexpr mode_t kDamagedMode = S_IRUSR | S_IWUSR | S_ISVTX;

// From now on, a fault in a watched mapping marks its object, names it on stderr, and ends the process at once with
// `exit_code`. Other faults end the process as usual. Call before starting threads.
void ExitOnMemoryFault(int exit_code);

// Watches the mapping [data, data + bytes) of the open file `fd` until it is to be unmapped. Thread-safe. At most 64
// mappings are watched at a time; a role has two.
void WatchMapping(const uint8_t* data, int64_t bytes, int fd, const std::string& name);
void UnwatchMapping(const uint8_t* data);

}  // namespace moestro
