#include "common/batch/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace moestro::batch {

std::optional<std::string_view> LineReader::Next() {
  line_.clear();
  offset_ += length_;
  length_ = 0;
  whole_ = false;
  while (!whole_) {
    if (at_ == filled_ && !Fill()) {
      if (error_ != 0 || length_ == 0) return std::nullopt;
      return line_;
    }
    const std::string_view rest(buffer_.data() + at_, filled_ - at_);
    const size_t end = rest.find('\n');
    whole_ = end != std::string_view::npos;
    const std::string_view piece = rest.substr(0, end);
    line_.append(piece.substr(0, most_ + 1 - std::min(line_.size(), most_ + 1)));
    const size_t taken = piece.size() + (whole_ ? 1 : 0);
    at_ += taken;
    length_ += taken;
  }
  return line_;
}

bool LineReader::Fill() {
  ssize_t got = 0;
  do {
    got = ::read(descriptor_, buffer_.data(), buffer_.size());
  } while (got < 0 && errno == EINTR);
  error_ = got < 0 ? errno : 0;
  at_ = 0;
  filled_ = got < 0 ? 0 : static_cast<size_t>(got);
  return filled_ > 0;
}

}  // namespace moestro::batch
