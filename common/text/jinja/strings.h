// Python's operations on text. Positions and lengths count code points; all text is valid UTF-8. Case mapping is ASCII
// only: role names and tags are ASCII, and a full mapping would need a Unicode table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::text::jinja {

// str.isspace(): White_Space and U+001C..U+001F.
bool IsPythonSpace(char32_t code_point);

enum class Side { kLeft, kRight, kBoth };
// str.strip(), str.lstrip() and str.rstrip(), for white space or the code points in `characters`.
std::string_view StripSpace(std::string_view text, Side side);
std::string_view StripCharacters(std::string_view text, std::string_view characters, Side side);

int64_t CodePointCount(std::string_view text);
// Byte offset of each code point, and text.size() at the end.
std::vector<size_t> CodePointOffsets(std::string_view text);

// The first position of `part` in `text`, or npos. Takes time linear in both, unlike std::string_view::find.
size_t Find(std::string_view text, std::string_view part);

// str.split(): at runs of white space, without empty parts. `limit` < 0: any number of splits.
std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit);
// str.split(separator) and str.rsplit(separator), which copies both; the separator is not empty.
std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t limit, Side side);

// str.splitlines(): at \n, \r, \r\n and the other line ends of Python; no empty line after the last end.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// Replaces up to `limit` occurrences from the left, all if `limit` < 0; `from` is not empty.
std::string Replace(std::string_view text, std::string_view from, std::string_view to, int64_t limit);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
// First letter upper case, the rest lower.
std::string Capitalize(std::string_view text);
// Jinja2's title: each word begins in upper case; words end at white space and - ( { [ <.
std::string Title(std::string_view text);

}  // namespace moestro::text::jinja
