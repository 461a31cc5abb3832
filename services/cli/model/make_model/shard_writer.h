// Generates and writes the data of one file on several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "services/cli/model/make_model/shard_plan.h"

namespace moestro::cli {

// Called after each piece with its size. Any writing thread calls it, concurrently.
using BytesWritten = absl::FunctionRef<void(int64_t bytes)>;

// One unit of work: bytes of a file, and what makes them.
struct FilePiece {
  int64_t offset = 0;  // in the file
  int64_t bytes = 0;
  std::function<void(std::byte* out)> fill;  // thread-safe
};

// Elements of a piece: enough to amortise a system call, few enough for the second-level cache to feed it.
inline constexpr int64_t kPieceElements = 1 << 20;

// Creates `path`: the header, the pieces, zeros between them and up to `bytes`. Uses the bytes of a piece per thread.
// Errors: RESOURCE_EXHAUSTED (no space left), UNAVAILABLE (any other failure; names the file).
absl::Status WriteFile(const std::filesystem::path& path, std::string_view header, const std::vector<FilePiece>& pieces,
                       int64_t bytes, int threads, BytesWritten written);

// Creates `directory`/shard.file_name. Uses a few megabytes per thread.
// Errors as above.
absl::Status WriteShard(const std::filesystem::path& directory, const Shard& shard, uint64_t seed, int threads,
                        BytesWritten written);

// Creates or replaces a small file. Errors as above.
absl::Status WriteTextFile(const std::filesystem::path& path, std::string_view text);

}  // namespace moestro::cli
