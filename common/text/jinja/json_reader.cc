#include "common/text/jinja/json_reader.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/text/concat.h"
#include "common/text/json/quoted.h"

namespace moestro::text::jinja {
namespace {

// Builds the value while the library reads. Every function returns false to end the reading.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const JsonText& make_text, int64_t* values_left) : make_text_(make_text), values_left_(*values_left) {}

  absl::StatusOr<Value> Take() {
    MOE_RETURN_IF_ERROR(status_);
    return std::move(result_);
  }

  bool null() override { return Add(Value(Value::None{})); }
  bool boolean(bool value) override { return Add(Value(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return AddBig(std::to_string(value));
    return Add(Value(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& digits) override {
    // The library reads integers of more than 64 bits as floating-point numbers.
    if (digits.find_first_of(".eE") == std::string::npos) return AddBig(digits);
    return Add(Value(value));
  }
  bool string(string_t& value) override { return Add(Value(make_text_(value))); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(size_t) override { return Open(/*is_object=*/true); }
  bool start_array(size_t) override { return Open(/*is_object=*/false); }
  bool key(string_t& value) override {
    open_.back().key = make_text_(value);
    return true;
  }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    status_ = absl::InvalidArgumentError(Concat("not valid JSON: ", Printable(error.what())));
    return false;
  }

 private:
  struct Level {
    bool is_object;
    std::string key;  // of the next member
    std::vector<std::pair<std::string, Value>> members;
    std::vector<Value> items;
  };

  bool Fail(std::string_view message) {
    status_ = absl::ResourceExhaustedError(Concat(message));
    return false;
  }
  bool AddBig(std::string digits) {
    return Add(Value(Value::BigInteger{std::make_shared<const std::string>(std::move(digits))}));
  }

  bool Count() {
    if (values_left_ <= 0) return Fail("has too many JSON values");
    --values_left_;
    return true;
  }

  bool Open(bool is_object) {
    if (open_.size() == kMaxJsonDepth) return Fail(Concat("is nested deeper than ", kMaxJsonDepth));
    if (!Count()) return false;
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool Close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    absl::StatusOr<Value> value =
        level.is_object ? Value::MakeDict(std::move(level.members)) : Value::MakeList(std::move(level.items));
    if (value.ok()) return Put(*std::move(value));
    status_ = value.status();
    return false;
  }

  bool Add(Value value) { return Count() && Put(std::move(value)); }

  bool Put(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.emplace_back(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  const JsonText& make_text_;
  int64_t& values_left_;
  std::vector<Level> open_;
  Value result_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Value> ReadJson(std::string_view text, const JsonText& make_text, int64_t* values_left) {
  // The library takes a NUL byte for the end of the input and would ignore the rest.
  if (text.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError("not valid JSON: contains a NUL byte");
  }
  Builder builder(make_text, values_left);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take();
}

}  // namespace moestro::text::jinja
