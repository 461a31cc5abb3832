#include "common/checkpoint/safetensors.h"

#include <xxhash.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace moestro::checkpoint {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // limit of the format's reference reader

}  // namespace

std::string HashHex(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)));
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path, std::vector<std::string>* warnings) {
  MOE_ASSIGN_OR_RETURN(ReadOnlyFile file, ReadOnlyFile::Open(path));
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file.size(), " bytes are too few for a safetensors file"));
  }
  unsigned char length_bytes[kLengthBytes];
  MOE_RETURN_IF_ERROR(file.ReadAt(0, length_bytes, kLengthBytes));
  uint64_t length = 0;
  for (int i = kLengthBytes - 1; i >= 0; --i) length = length << 8 | length_bytes[i];
  if (length > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": header length ", length, " is above the limit of ",
                                                   kMaxHeaderBytes, " bytes; is this a safetensors file?"));
  }
  const int64_t data_start = kLengthBytes + static_cast<int64_t>(length);
  if (data_start > file.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the header ends at byte ", data_start,
                                                   ", but the file has only ", file.size(),
                                                   " bytes: it is truncated, download it again"));
  }
  std::string header(length, '\0');
  MOE_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, header.data(), static_cast<int64_t>(length)));
  MOE_ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors,
                       ParseSafetensorsHeader(header, data_start, file.size() - data_start, path, warnings));
  return SafetensorsFile(std::move(file), std::move(tensors), HashHex(header));
}

}  // namespace moestro::checkpoint
