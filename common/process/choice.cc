#include "common/process/choice.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace moestro {

void AddWords(CLI::App& app, const std::string& flag, const std::vector<std::string>& words, const std::string& chosen,
              std::function<void(size_t index)> choose, const std::string& help) {
  const auto take = [flag, words, choose = std::move(choose)](const std::string& word) {
    const auto found = std::ranges::find(words, word);
    if (found != words.end()) return choose(static_cast<size_t>(found - words.begin()));
    const std::string all_but_last = absl::StrJoin(words.begin(), words.end() - 1, ", ");
    throw CLI::ValidationError(absl::StrCat(flag, " ", word, ": use ", all_but_last, " or ", words.back()));
  };
  app.add_option_function<std::string>(flag, take, help)->default_str(chosen);
}

}  // namespace moestro
