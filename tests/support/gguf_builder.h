// Builds small GGUF files for tests, value by value; the caller may damage what comes out.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace moestro::testing {

// The numbers that stand for types of values in the file.
enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// And for types of tensors.
inline constexpr uint32_t kTypeF32 = 0, kTypeQ4_0 = 2, kTypeQ4K = 12;

template <typename T>
std::string RawBytes(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
inline std::string RawString(const std::string& text) { return RawBytes<uint64_t>(text.size()) + text; }

// Keys and tensors in the order of the calls.
class GgufBuilder {
 public:
  GgufBuilder& Raw(const std::string& key, GgufType type, const std::string& value) {
    keys_.push_back(RawString(key) + RawBytes(static_cast<uint32_t>(type)) + value);
    return *this;
  }
  GgufBuilder& Integer(const std::string& key, uint32_t value) { return Raw(key, GgufType::kU32, RawBytes(value)); }
  GgufBuilder& Float(const std::string& key, float value) { return Raw(key, GgufType::kF32, RawBytes(value)); }
  GgufBuilder& Flag(const std::string& key, bool value) { return Raw(key, GgufType::kBool, RawBytes(value)); }
  GgufBuilder& Text(const std::string& key, const std::string& value) {
    return Raw(key, GgufType::kString, RawString(value));
  }
  GgufBuilder& Array(const std::string& key, GgufType type, const std::vector<std::string>& raw_elements) {
    std::string value = RawBytes(static_cast<uint32_t>(type)) + RawBytes<uint64_t>(raw_elements.size());
    for (const std::string& element : raw_elements) value += element;
    return Raw(key, GgufType::kArray, value);
  }

  // `extents`: as in the file, the first one is that of a row. `data`: bytes of that ggml type.
  GgufBuilder& Tensor(const std::string& name, uint32_t type, const std::vector<uint64_t>& extents,
                      const std::string& data) {
    tensors_.push_back({name, type, extents, data, false, 0});
    return *this;
  }
  // A tensor that begins where it should not.
  GgufBuilder& TensorAt(uint64_t offset, const std::string& name, uint32_t type, const std::vector<uint64_t>& extents) {
    tensors_.push_back({name, type, extents, "", true, offset});
    return *this;
  }
  // What Integer("general.alignment", ...) says, where it is not 32.
  GgufBuilder& Alignment(size_t alignment) {
    alignment_ = alignment;
    return *this;
  }

  // Without data, and without the padding before it.
  std::string Header() const { return Parts().first; }
  std::string Build() const {
    auto [header, data] = Parts();
    Pad(header);
    return header + data;
  }

 private:
  struct OneTensor {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> extents;
    std::string data;
    bool has_offset;
    uint64_t offset;
  };

  void Pad(std::string& bytes) const { bytes.resize((bytes.size() + alignment_ - 1) / alignment_ * alignment_); }

  std::pair<std::string, std::string> Parts() const {
    std::string header = "GGUF" + RawBytes<uint32_t>(3) + RawBytes<uint64_t>(tensors_.size());
    header += RawBytes<uint64_t>(keys_.size());
    for (const std::string& key : keys_) header += key;
    std::string data;
    for (const OneTensor& tensor : tensors_) {
      header += RawString(tensor.name) + RawBytes(static_cast<uint32_t>(tensor.extents.size()));
      for (const uint64_t extent : tensor.extents) header += RawBytes(extent);
      header += RawBytes(tensor.type) + RawBytes<uint64_t>(tensor.has_offset ? tensor.offset : data.size());
      data += tensor.data;
      Pad(data);
    }
    return {header, data};
  }

  std::vector<std::string> keys_;
  std::vector<OneTensor> tensors_;
  size_t alignment_ = 32;
};

}  // namespace moestro::testing
