// Every field that the requests of OpenAI's and Anthropic's clients have, and what becomes of it here. A field that
// changes the answer is honoured or refused by its name, never dropped. tests/integration/test_api_fields.py compares
// the tables with the clients' own types, and sends a wrong type for each field that is honoured.
#pragma once

#include <span>

#include "common/text/json/json.h"

namespace moestro::router {

enum class FieldUse {
  kHonoured,  // an endpoint reads it
  kNoEffect,  // accepted: it says who asks, how to bill or store, or gives a hint that does not change what is right
  kRefused,   // asks for what is not here
};

struct ApiField {
  const char* path;  // "messages[].name": a list's name ends in []. One row stands for what is inside of it, too,
                     // unless that has rows of its own
  FieldUse use;
  // Of a refused field: a JSON list of values that ask for nothing, alone or in a list; and what to do instead.
  const char* harmless = "[]";
  const char* remedy = "";
};

enum class Api { kChat, kCompletions, kResponses, kMessages };

std::span<const ApiField> FieldsOf(Api api);

// UNIMPLEMENTED for a field that is refused: "messages[3].audio: ...". INVALID_ARGUMENT for an element on its path that
// is no object. Fields that no table has are accepted: clients of other servers send more.
void RefuseFields(Api api, text::JsonFields& fields);

}  // namespace moestro::router
