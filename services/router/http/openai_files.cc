#include "services/router/http/openai_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/text/json/quoted.h"
#include "services/router/batches/batches.h"
#include "services/router/http/downloads.h"
#include "services/router/http/frames.h"
#include "services/router/http/multipart.h"
#include "services/router/http/pages.h"

namespace moestro::router {
namespace {

constexpr std::string_view kFilePath = "/v1/files/";
constexpr size_t kMostFilesOfAPage = 10'000;
constexpr size_t kPieceBytes = size_t{1} << 20;

std::string IdOf(const HttpRequest& request) { return request.head.path.substr(kFilePath.size()); }

struct Upload {
  std::string name;
  std::string_view contents;
};

absl::StatusOr<Upload> ReadUpload(const HttpRequest& request) {
  MOE_ASSIGN_OR_RETURN(const std::vector<FormPart> parts,
                       ParseForm(request.head.header("content-type"), request.body.text));
  const FormPart* file = nullptr;
  std::string_view purpose;
  for (const FormPart& part : parts) {
    if (part.name == "file") file = &part;
    if (part.name == "purpose") purpose = part.contents;
    if (absl::StartsWith(part.name, "expires_after")) {
      return absl::UnimplementedError("expires_after: files stay until they are deleted; leave it out");
    }
  }
  if (file == nullptr) return absl::InvalidArgumentError("file: is missing");
  if (purpose != "batch") {
    return absl::InvalidArgumentError(
        absl::StrCat("purpose: must be \"batch\", not ", text::Quoted(purpose), ": files are for batches only"));
  }
  return Upload{.name = text::Printable(file->filename), .contents = file->contents};
}

// Sends a file in pieces, each when the client has taken the one before.
absl::Status SendContents(const std::string& path, Response& response) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return absl::InternalError(absl::StrCat("the file cannot be read: ", std::strerror(errno)));
  absl::Status status = response.Begin({{"Content-Type", "application/octet-stream"}});
  while (status.ok()) {
    std::string piece(kPieceBytes, '\0');
    const ssize_t bytes = ::read(descriptor, piece.data(), piece.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    piece.resize(static_cast<size_t>(bytes));
    status = response.Write(std::move(piece));
    if (status.ok()) status = response.WaitUntilTaken();
  }
  ::close(descriptor);
  return status;
}

}  // namespace

absl::StatusOr<Batches*> BatchesOf(const HttpApi& api) {
  if (api.batches != nullptr) return api.batches;
  return absl::NotFoundError(
      "this router keeps no files and batches: start moestro-router with --batch-dir DIR, or use `moestro batch`");
}

absl::Status HandleUploadFile(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  MOE_ASSIGN_OR_RETURN(const Upload upload, ReadUpload(request));
  MOE_ASSIGN_OR_RETURN(const StoredFile file, batches->AddFile(response.tenant_name(), upload.name, upload.contents));
  return response.SendJson(200, Dump(file.ToJson()));
}

absl::Status HandleListFiles(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  MOE_ASSIGN_OR_RETURN(const PageQuery query, ParsePageQuery(request.head.query, kMostFilesOfAPage, kMostFilesOfAPage));
  std::vector<OrderedJson> objects;
  for (const StoredFile& file : batches->files().List(response.tenant_name())) {
    if (query.purpose.empty() || query.purpose == file.purpose) objects.push_back(file.ToJson());
  }
  return response.SendJson(200, Dump(Page(std::move(objects), query)));
}

absl::Status HandleFile(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  constexpr std::string_view kContent = "/content";
  std::string id = IdOf(request);
  const bool contents = id.ends_with(kContent);
  if (contents) id.resize(id.size() - kContent.size());
  MOE_ASSIGN_OR_RETURN(const StoredFile file, batches->files().Find(response.tenant_name(), id));
  if (!contents) return response.SendJson(200, Dump(file.ToJson()));
  const std::string tenant = response.tenant_name();
  MOE_RETURN_IF_ERROR(api.downloads->Begin(tenant));
  const absl::Cleanup end = [&] { api.downloads->End(tenant); };
  return SendContents(batches->files().PathOf(id), response);
}

absl::Status HandleDeleteFile(const HttpApi& api, const HttpRequest& request, Response& response) {
  MOE_ASSIGN_OR_RETURN(Batches* const batches, BatchesOf(api));
  const std::string id = IdOf(request);
  MOE_RETURN_IF_ERROR(batches->RemoveFile(response.tenant_name(), id));
  return response.SendJson(200, Dump({{"id", id}, {"object", "file"}, {"deleted", true}}));
}

}  // namespace moestro::router
