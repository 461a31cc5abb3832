#include "services/cli/token_texts.h"

#include "common/base/status.h"
#include "moestro/v1/inference.pb.h"

namespace moestro {

absl::StatusOr<std::string> TokenTexts::Get(int32_t id) {
  const auto known = texts_.find(id);
  if (known != texts_.end()) return known->second;
  v1::DetokenizeRequest request;
  request.add_ids(id);
  request.set_keep_special_tokens(true);
  v1::DetokenizeReply reply;
  MOE_RETURN_IF_ERROR(client_.Detokenize(request, reply));
  return texts_[id] = reply.text();
}

}  // namespace moestro
