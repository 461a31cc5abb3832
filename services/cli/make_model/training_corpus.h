// The text that the tokenizer of a made model is trained on: prose, code, numbers and CJK, a few kilobytes.
#pragma once

#include <string_view>

namespace moestro {

std::string_view TrainingCorpus();

}  // namespace moestro
