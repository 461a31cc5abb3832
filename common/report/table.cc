#include "common/report/table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/report/html.h"

namespace moestro {
namespace {

const char* NumberClass(const Table& table, size_t column) {
  return column < table.text_columns ? "" : " class=\"number\"";
}

}  // namespace

std::string MarkdownCell(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()), {{"|", "\\|"}, {"\n", " "}});
}

std::string MarkdownTable(const Table& table) {
  std::string head = "|", rule = "|", body;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    absl::StrAppend(&head, " ", MarkdownCell(table.columns[i]), " |");
    absl::StrAppend(&rule, i < table.text_columns ? "---|" : "---:|");
  }
  for (const auto& row : table.rows) {
    absl::StrAppend(&body, "|");
    for (const std::string& cell : row) absl::StrAppend(&body, " ", MarkdownCell(cell), " |");
    absl::StrAppend(&body, "\n");
  }
  return absl::StrCat(head, "\n", rule, "\n", body);
}

std::string HtmlTable(const Table& table) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    absl::StrAppend(&html, "<th", NumberClass(table, i), ">", EscapeHtml(table.columns[i]), "</th>");
  }
  absl::StrAppend(&html, "</tr></thead><tbody>\n");
  for (const auto& row : table.rows) {
    absl::StrAppend(&html, "<tr>");
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&html, "<td", NumberClass(table, i), ">", EscapeHtml(row[i]), "</td>");
    }
    absl::StrAppend(&html, "</tr>\n");
  }
  return absl::StrCat(html, "</tbody></table></div>\n");
}

}  // namespace moestro
