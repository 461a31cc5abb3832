// Finds stop texts in an answer that comes in pieces, wherever a piece ends. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::router {

class StopMatcher {
 public:
  // `stops`: UTF-8, none is empty. `keeps`: the one that is found is sent, too.
  explicit StopMatcher(const std::vector<std::string>& stops, bool keeps = false);

  // What may be sent now that `text`, whole characters, has followed: everything before the stop text that ends first
  // (of several with the same end, the longest), without what may be the beginning of one. Nothing after a match. Takes
  // time in proportion to the text and the number of stop texts.
  std::string Push(std::string_view text);

  // The end of the answer: what was held back. Nothing after a match.
  std::string Flush();

  // The stop text that was found; empty = none.
  const std::string& found() const { return found_; }

 private:
  // The algorithm of Knuth, Morris and Pratt.
  struct Pattern {
    explicit Pattern(std::string stop);
    void Push(char byte);
    bool complete() const { return matched == text.size(); }

    std::string text;
    std::vector<size_t> borders;  // [i]: longest proper prefix of text that ends text[0, i]
    size_t matched = 0;           // bytes of text that the answer ends with
  };

  const bool keeps_;
  std::vector<Pattern> patterns_;
  std::string held_;  // the longest beginning of a stop text that the answer ends with
  std::string found_;
};

}  // namespace moestro::router
