// Cuts a file into lines, however long, in bounded memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::batch {

class LineReader {
 public:
  // From where the descriptor stands. A line that is longer than `most` bytes comes cut to one byte more.
  LineReader(int descriptor, size_t most) : descriptor_(descriptor), most_(most) {}

  // The next line, without its end, valid until the next call; nullopt at the end of the file, or after an error.
  std::optional<std::string_view> Next();

  int error() const { return error_; }         // an error number, or 0
  uint64_t offset() const { return offset_; }  // of the line; at the end of the file its length
  bool whole() const { return whole_; }        // the line has its end

 private:
  bool Fill();

  const int descriptor_;
  const size_t most_;
  std::vector<char> buffer_ = std::vector<char>(size_t{64} << 10);
  size_t at_ = 0;
  size_t filled_ = 0;
  std::string line_;
  uint64_t offset_ = 0;
  uint64_t length_ = 0;
  bool whole_ = false;
  int error_ = 0;
};

}  // namespace moestro::batch
