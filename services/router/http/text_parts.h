// Texts that do not stand in a part of the type text: files, documents, results of a search.
#pragma once

#include <string>

#include "common/text/json/json.h"

namespace moestro::router {

// OpenAI's file_data, a data URL or Base64, and the filename. UNIMPLEMENTED, naming file_data, for what is no text.
std::string ReadFile(text::JsonFields& file);

// Anthropic's blocks of the types text, document, search_result and tool_reference: title and text. UNIMPLEMENTED,
// naming the field, for a document that is no text.
std::string ReadTextBlock(text::JsonFields& block);

}  // namespace moestro::router
