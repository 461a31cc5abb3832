#include "common/checkpoint/tensor_file.h"

#include <xxhash.h>

#include "absl/strings/escaping.h"

namespace moestro::checkpoint {

std::string HashHex(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)));
}

}  // namespace moestro::checkpoint
