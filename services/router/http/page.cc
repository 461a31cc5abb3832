#include "services/router/http/page.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/text/json/quoted.h"
#include "services/router/page/page_files.h"

namespace moestro::router {
namespace {

// The page loads nothing from elsewhere, runs no script but its own, and is shown in no other page's frame. So a text
// of a model could not do anything even if it became HTML.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

}  // namespace

absl::Status HandlePage(const HttpRequest& request, Response& response) {
  constexpr std::string_view kPrefix = "/page/";
  const std::string& path = request.head.path;
  const std::string_view name = path == "/" ? "index.html" : std::string_view(path).substr(kPrefix.size());
  const auto file = std::ranges::find(PageFiles(), name, &PageFile::name);
  if (file == PageFiles().end()) {
    return absl::NotFoundError(absl::StrCat("the page has no file ", text::Quoted(name)));
  }
  return response.Send(200,
                       {{"Content-Type", std::string(file->content_type)},
                        {"Content-Security-Policy", kPolicy},
                        {"Referrer-Policy", "no-referrer"},
                        {"X-Content-Type-Options", "nosniff"},
                        {"Cache-Control", "no-cache"}},
                       std::string(file->body));
}

}  // namespace moestro::router
