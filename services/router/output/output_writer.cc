#include "services/router/output/output_writer.h"

#include <algorithm>
#include <utility>

#include "common/base/random_bits.h"
#include "services/router/output/markers.h"

namespace moestro::router {

void TrimmedText::Add(std::string_view text, std::string* out) {
  if (drops_space_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  if (text.empty()) return;
  drops_space_ = false;
  const size_t solid = marked_ ? text.find_last_not_of(kSpace) + 1 : text.size();
  if (solid > 0) {
    out->append(held_).append(text.substr(0, solid));
    held_.clear();
    began_ = true;
  }
  held_ += text.substr(solid);
}

void TrimmedText::DropSpaceBefore() {
  if (began_) return;
  held_.clear();
  drops_space_ = true;
}

void TrimmedText::EndParagraph() {
  held_ = began_ ? "\n\n" : "";
  drops_space_ = true;
}

void TrimmedText::Flush(std::string* out) {
  if (!drops_space_) out->append(std::exchange(held_, {}));
}

void OutputWriter::EndReasoning() {
  reasoning_.EndParagraph();
  content_.DropSpaceBefore();
}

void OutputWriter::BeginCall(std::string_view name, std::string_view id) {
  content_.DropSpaceBefore();
  held_arguments_.clear();
  if (++calls_ > most_calls_) return;
  delta_.tool_calls.push_back(
      {.index = calls_ - 1, .id = id.empty() ? NewId() : std::string(id), .name = std::string(name)});
}

void OutputWriter::Arguments(std::string_view json) {
  if (calls_ > most_calls_) return;
  const size_t solid = json.find_last_not_of(kSpace) + 1;
  if (solid > 0) {
    const uint32_t index = calls_ - 1;
    if (delta_.tool_calls.empty() || delta_.tool_calls.back().index != index) delta_.tool_calls.push_back({index});
    delta_.tool_calls.back().arguments.append(held_arguments_).append(json.substr(0, solid));
    held_arguments_.clear();
  }
  held_arguments_ += json.substr(solid);
}

OutputDelta OutputWriter::Finish() {
  if (!saw_calls()) content_.Flush(&delta_.content);
  return Take();
}

std::string OutputWriter::NewId() const {
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const size_t size = ids_ == Ids::kLong ? 29 : 9;
  std::string id = ids_ == Ids::kLong ? "call_" : "";
  const RandomWords words(id_seed_, std::to_string(calls_ - 1));
  for (uint64_t i = 0; id.size() < size; ++i) id += kDigits[words[i] % kDigits.size()];
  return id;
}

}  // namespace moestro::router
