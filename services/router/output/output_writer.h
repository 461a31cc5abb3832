// Collects the deltas of an answer: trims texts around markers, and numbers the calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "services/router/output/output_parser.h"

namespace moestro::router {

// A text whose white space next to markers is dropped.
class TrimmedText {
 public:
  // `marked`: markers may follow, so white space at the end waits for text.
  explicit TrimmedText(bool marked) : marked_(marked) {}

  void Add(std::string_view text, std::string* out);
  void DropSpaceBefore();        // if no text came yet: white space that came, and comes next, is dropped
  void EndParagraph();           // a blank line separates what comes next
  void Flush(std::string* out);  // white space that ends the text

 private:
  bool marked_;
  bool began_ = false;
  bool drops_space_ = false;
  std::string held_;
};

class OutputWriter {
 public:
  enum class Ids { kLong, kNineCharacters };  // "call_" and 24 letters and digits; or 9 of them

  // `marked`: as of TrimmedText, of the content. Calls after the first `most_calls` are dropped.
  OutputWriter(bool marked, Ids ids, uint64_t id_seed, uint32_t most_calls = UINT32_MAX)
      : content_(marked), ids_(ids), id_seed_(id_seed), most_calls_(most_calls) {
    reasoning_.DropSpaceBefore();
  }

  void Content(std::string_view text) { content_.Add(text, &delta_.content); }
  void Reasoning(std::string_view text) { reasoning_.Add(text, &delta_.reasoning); }
  // What follows is no longer reasoning, or the reasoning's next paragraph.
  void EndReasoning();
  void EndContentParagraph() { content_.EndParagraph(); }

  // An empty `id`: the writer makes one.
  void BeginCall(std::string_view name, std::string_view id = {});
  void Arguments(std::string_view json);  // of the last call; white space at the end waits for more
  void EndCall() { held_arguments_.clear(); }

  OutputDelta Take() { return std::exchange(delta_, {}); }
  OutputDelta Finish();
  bool saw_calls() const { return calls_ > 0; }

 private:
  std::string NewId() const;

  OutputDelta delta_;
  TrimmedText content_;
  TrimmedText reasoning_{/*marked=*/true};
  const Ids ids_;
  const uint64_t id_seed_;
  const uint32_t most_calls_;
  uint32_t calls_ = 0;  // those that were dropped, too
  std::string held_arguments_;
};

}  // namespace moestro::router
