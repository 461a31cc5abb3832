// The text of a field or element, as it was written: what a parser makes of it has lost the order of its keys.
#pragma once

#include <string_view>
#include <vector>

namespace moestro::text {

// Of the object in `text`, which must be valid JSON, the value of `key`; empty if it has no such field.
std::string_view RawField(std::string_view text, std::string_view key);

// The value that `text` begins with, up to its last byte; of malformed JSON any part of the text.
std::string_view RawValue(std::string_view text);

// The elements of the array in `text`, which must be valid JSON; none if it is no array.
std::vector<std::string_view> RawElements(std::string_view text);

}  // namespace moestro::text
