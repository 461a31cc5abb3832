#include "common/report/html.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace moestro {
namespace {

// Both colour schemes; numbers in columns; wide tables scroll in a box. s0 to s5 are the series of a plot.
constexpr char kStyle[] = R"(<style>
:root { color-scheme: light dark; --ink: #1d232b; --soft: #5c6773; --line: #d9dee4; --page: #ffffff; --band: #f4f6f8;
        --pass: #12805c; --miss: #b3422f; --bar: #3b6fb5; --reference: #98a3af;
        --s0: #3b6fb5; --s1: #c2662d; --s2: #12805c; --s3: #8d56b8; --s4: #b3422f; --s5: #5c6773; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ed; --soft: #98a3af; --line: #333c46; --page: #14181d; --band: #1c2229;
          --pass: #4cc38a; --miss: #f08a75; --bar: #6ea3ea; --reference: #5c6773;
          --s0: #6ea3ea; --s1: #eaa06e; --s2: #4cc38a; --s3: #c39ae6; --s4: #f08a75; --s5: #98a3af; }
}
body { margin: 0 auto; max-width: 1080px; padding: 2rem 1.25rem 4rem; background: var(--page); color: var(--ink);
       font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem; }
p { margin: .25rem 0 .75rem; color: var(--soft); max-width: 80ch; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0; font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .87rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
td small { display: block; color: var(--soft); }
.pass { color: var(--pass); font-weight: 600; }
.miss { color: var(--miss); font-weight: 600; }
svg { display: block; width: 100%; height: auto; margin: .5rem 0 1rem; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .soft { fill: var(--soft); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .bar { fill: var(--bar); }
svg .bar.pass { fill: var(--pass); }
svg .bar.miss { fill: var(--miss); }
svg .range { stroke: var(--ink); stroke-width: 1.5; }
svg .target { stroke: var(--ink); stroke-width: 2; stroke-dasharray: 3 2; }
figure { margin: 1rem 0; }
figcaption { font-size: .9rem; font-weight: 600; }
figure svg { max-width: 760px; }
.key { font-size: .82rem; color: var(--soft); }
.key span { margin-right: 1.2em; white-space: nowrap; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px; }
svg polyline { fill: none; stroke-width: 1.6; }
svg polyline.s0 { stroke: var(--s0); } svg rect.s0, svg circle.s0 { fill: var(--s0); } .key i.s0 { background: var(--s0); }
svg polyline.s1 { stroke: var(--s1); } svg rect.s1, svg circle.s1 { fill: var(--s1); } .key i.s1 { background: var(--s1); }
svg polyline.s2 { stroke: var(--s2); } svg rect.s2, svg circle.s2 { fill: var(--s2); } .key i.s2 { background: var(--s2); }
svg polyline.s3 { stroke: var(--s3); } svg rect.s3, svg circle.s3 { fill: var(--s3); } .key i.s3 { background: var(--s3); }
svg polyline.s4 { stroke: var(--s4); } svg rect.s4, svg circle.s4 { fill: var(--s4); } .key i.s4 { background: var(--s4); }
svg polyline.s5 { stroke: var(--s5); } svg rect.s5, svg circle.s5 { fill: var(--s5); } .key i.s5 { background: var(--s5); }
)";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string EscapeHtml(std::string_view text) {
  return absl::StrReplaceAll(View(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string HtmlPage(std::string_view title, std::string_view body) {
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      EscapeHtml(title), "</title>\n", kStyle, "</style>\n</head>\n<body>\n", View(body), "</body>\n</html>\n");
}

std::string HtmlFacts(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string html = "<dl>\n";
  for (const auto& [what, value] : facts) {
    absl::StrAppend(&html, "<dt>", EscapeHtml(what), "</dt><dd>", EscapeHtml(value), "</dd>\n");
  }
  return absl::StrCat(html, "</dl>\n");
}

}  // namespace moestro
