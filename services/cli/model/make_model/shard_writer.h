// Generates and writes the data of one shard on several threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "services/cli/model/make_model/shard_plan.h"

namespace moestro::cli {

// Called after each piece with its size. Any writing thread calls it, concurrently.
using BytesWritten = absl::FunctionRef<void(int64_t bytes)>;

// Creates `directory`/shard.file_name. Uses a few megabytes per thread.
// Errors: RESOURCE_EXHAUSTED (no space left), UNAVAILABLE (any other failure; names the file).
absl::Status WriteShard(const std::filesystem::path& directory, const Shard& shard, uint64_t seed, int threads,
                        BytesWritten written);

// Creates or replaces a small file. Errors as above.
absl::Status WriteTextFile(const std::filesystem::path& path, std::string_view text);

}  // namespace moestro::cli
