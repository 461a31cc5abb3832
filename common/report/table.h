// Tables of a report, as Markdown and as HTML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moestro {

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as columns
  size_t text_columns = 1;                     // so many from the left are text, all others numbers (set to the right)
};

std::string MarkdownTable(const Table& table);
std::string HtmlTable(const Table& table);

// A text that may contain what would end a cell.
std::string MarkdownCell(std::string_view text);

}  // namespace moestro
