// Gets the model's tokenizer from the weight store, for roles that need it at some requests only.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"

namespace moestro {

// Waits some seconds for a store that is restarting. UNAVAILABLE: it does not answer. FAILED_PRECONDITION: it serves
// other weights than those with this fingerprint.
absl::StatusOr<std::unique_ptr<const text::Tokenizer>> LoadTokenizer(const std::string& store_address,
                                                                     const std::string& fingerprint);

}  // namespace moestro
