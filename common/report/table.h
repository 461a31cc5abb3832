// Tables of a report, as Markdown and as HTML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moestro {

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // one cell per column
  size_t text_columns = 1;                     // leading columns that are text; the others are numbers, right-aligned
};

std::string MarkdownTable(const Table& table);
std::string HtmlTable(const Table& table);

// Escapes characters that would end a cell.
std::string MarkdownCell(std::string_view text);

}  // namespace moestro
