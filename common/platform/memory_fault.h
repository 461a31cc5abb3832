// What becomes of a process that touches mapped memory which is not there (SIGBUS): a page with an uncorrectable error
// of the machine's memory, an object that was cut short, a page that a full /dev/shm has no room for. The page stays as
// it is, so a process that only started again would touch it again: the object is marked, and nobody opens it any more.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace moestro {

// The permissions of a shared-memory object that is damaged. They are all that a signal handler can write and everybody
// can read for certain: the object's own bytes may lie in the page that is lost.
inline constexpr mode_t kDamagedMode = S_IRUSR | S_IWUSR | S_ISVTX;

// From now on a fault in a watched mapping marks its object, says on stderr which it was, and ends the process at once
// with `exit_code`. A fault elsewhere ends it as ever. Call it before threads start.
void ExitOnMemoryFault(int exit_code);

// Watches the mapping [data, data + bytes) of the open file `fd`, until it is to be unmapped. Thread-safe. Of very many
// mappings at a time only the first 64 are watched; a role has two.
void WatchMapping(const uint8_t* data, int64_t bytes, int fd, const std::string& name);
void UnwatchMapping(const uint8_t* data);

}  // namespace moestro
