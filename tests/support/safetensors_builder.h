// Builds small safetensors files for tests: well-formed ones tensor by tensor, malformed ones from raw text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace moestro::testing {

// Length prefix, verbatim `header`, then `data`.
inline std::string RawSafetensors(const std::string& header, const std::string& data) {
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>(static_cast<uint64_t>(header.size()) >> shift & 0xff));
  }
  return file + header + data;
}

// Stores tensors in name order. Names must need no JSON escapes.
class SafetensorsBuilder {
 public:
  // `data` is the tensor's bytes; empty means zeros. Replaces a tensor of the same name.
  SafetensorsBuilder& Add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                          std::string data = "") {
    if (data.empty()) data.assign(static_cast<size_t>(ByteSize(dtype, shape)), '\0');
    tensors_[name] = {dtype, std::move(shape), std::move(data)};
    return *this;
  }
  SafetensorsBuilder& Remove(const std::string& name) {
    tensors_.erase(name);
    return *this;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }

  std::string Build() const {
    std::string header = "{";
    std::string data;
    for (const auto& [name, tensor] : tensors_) {
      std::string shape;
      for (const int64_t extent : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
      const size_t begin = data.size();
      data += tensor.data;
      header += (header.size() == 1 ? "\"" : ",\"") + name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" +
                shape + "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
    }
    header += "}";
    header.append((8 - header.size() % 8) % 8, ' ');
    return RawSafetensors(header, data);
  }

 private:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string data;
  };

  static int64_t ByteSize(const std::string& dtype, const std::vector<int64_t>& shape) {
    static const std::map<std::string, int64_t> kBytes = {
        {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F8_E4M3", 1}, {"I64", 8}, {"I32", 4}, {"U8", 1}, {"I8", 1}, {"F64", 8}};
    int64_t bytes = kBytes.at(dtype);
    for (const int64_t extent : shape) bytes *= extent;
    return bytes;
  }

  std::map<std::string, Tensor> tensors_;
};

}  // namespace moestro::testing
