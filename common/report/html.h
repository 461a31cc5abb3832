// One self-contained HTML page: styles and plots are inline, nothing is loaded from outside.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {

// &, <, >, " and ' as entities.
std::string EscapeHtml(std::string_view text);

// The page around `body` (HTML), with both colour schemes. Its style sheet defines the classes of this folder's plots.
std::string HtmlPage(std::string_view title, std::string_view body);

// A list of names and values, for the head of a report.
std::string HtmlFacts(const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace moestro
