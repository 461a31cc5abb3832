// Whole reads and writes of a descriptor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moestro::batch {

// An error number, or 0. Without an error all bytes are written.
int WriteAll(int descriptor, std::string_view text);
// An error number, or 0; EIO if the file ends before.
int ReadAt(int descriptor, uint64_t offset, std::string& text);
// Makes the names in the folder of `path` last. An error number, or 0.
int SyncFolderOf(const std::string& path);

}  // namespace moestro::batch
