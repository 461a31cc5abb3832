#include "common/checkpoint/safetensors.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/file.h"
#include "common/checkpoint/safetensors_header.h"

namespace moestro::checkpoint {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // limit of the format's reference reader

}  // namespace

absl::StatusOr<TensorFile> OpenSafetensors(const std::string& path, std::vector<std::string>* warnings) {
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
  return TensorFile(std::move(file), std::move(tensors), HashHex(header));
}

}  // namespace moestro::checkpoint
