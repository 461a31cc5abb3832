#include "common/process/choice.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace moestro {

Flag AddWords(FlagSet& flags, const std::string& flag, const std::vector<std::string>& words, const std::string& chosen,
              std::function<void(size_t index)> choose, const std::string& help) {
  const auto take = [flag, words, choose = std::move(choose)](const std::string& word) -> absl::Status {
    const auto found = std::ranges::find(words, word);
    if (found == words.end()) {
      const std::string all_but_last = absl::StrJoin(words.begin(), words.end() - 1, ", ");
      return absl::InvalidArgumentError(absl::StrCat(flag, " ", word, ": use ", all_but_last, " or ", words.back()));
    }
    choose(static_cast<size_t>(found - words.begin()));
    return absl::OkStatus();
  };
  return flags.AddFunction(flag, chosen, take, help);
}

}  // namespace moestro
