// Finds markers, such as "<tool_call>", in a text that grows.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::router {

class MarkerSet {  // immutable, thread-safe
 public:
  MarkerSet() = default;
  explicit MarkerSet(std::vector<std::string> markers);  // empty ones are ignored

  struct Match {
    size_t size = 0;        // of the longest marker that the text begins with; 0: none
    bool may_grow = false;  // more text may make a longer one
  };
  Match At(std::string_view text) const;

  bool empty() const { return markers_.empty(); }

 private:
  std::vector<std::string> markers_;  // sorted
  std::array<bool, 256> starts_{};    // whether any marker starts with the byte
};

inline constexpr std::string_view kSpace = " \t\r\n";
std::string_view Trimmed(std::string_view text);

// The part of a text that has come and is not used yet. Views stay valid until the next Append.
class PendingText {
 public:
  void Append(std::string_view text);
  void End() { ended_ = true; }  // no more text comes

  bool ended() const { return ended_; }
  std::string_view rest() const { return std::string_view(text_).substr(begin_); }

  std::string_view Take(size_t bytes);  // <= rest().size()
  std::string_view TakeSpace() { return Take(SpaceSize()); }
  size_t SpaceSize() const;  // of the white space at the start

  // The text before the first marker, and that marker. Without one: all text that cannot be part of one.
  struct Cut {
    std::string_view before;
    std::string_view marker;
  };
  Cut TakeUntil(const MarkerSet& markers);

  // Takes a marker if the text begins with it.
  enum class Next { kMarker, kOther, kUnknown };  // kUnknown: more text has to come
  Next TakeMarker(const MarkerSet& markers, std::string_view* marker);

 private:
  std::string text_;
  size_t begin_ = 0;
  bool ended_ = false;
};

}  // namespace moestro::router
