// Numbers as the bytes that streams copy.
#pragma once

#include <cstdint>

namespace moestro {

inline uint8_t* BytesOf(void* data) { return static_cast<uint8_t*>(data); }
inline const uint8_t* BytesOf(const void* data) { return static_cast<const uint8_t*>(data); }

}  // namespace moestro
