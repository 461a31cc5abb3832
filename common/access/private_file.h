// Files that only their owner may change, and not everybody may read: hashes of keys, private keys of TLS.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace moestro::access {

// Reads the file. NOT_FOUND; PERMISSION_DENIED if others may read it, or others or its group may write to it, or it
// belongs to neither this user nor root; INVALID_ARGUMENT if it is no file, or has more than `most` bytes. Errors say
// the remedy, but not the path.
absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t most);

}  // namespace moestro::access
