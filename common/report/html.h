// One self-contained HTML page: styles and plots are inline, nothing is loaded from anywhere.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {

// &, <, >, " and ' as entities.
std::string EscapeHtml(std::string_view text);

// The page around `body` (HTML). Both colour schemes; its style sheet knows the classes that the plots of this folder
// use.
std::string HtmlPage(std::string_view title, std::string_view body);

// What, value: a list at the head of a report.
std::string HtmlFacts(const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace moestro
