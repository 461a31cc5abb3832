#include "common/checkpoint/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxInteger = uint64_t{1} << 48;
constexpr size_t kMaxRank = 32;
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kJsonWhitespace = " \t\r\n";

struct DTypeEntry {
  std::string_view name;
  int64_t bits;
  std::optional<DType> dtype;
};
// F8_E4M3 is the FN variant: no infinities, largest finite value 448.
constexpr DTypeEntry kDTypes[] = {
    {"F32", 32, DType::kF32},         {"BF16", 16, DType::kBF16},   {"F8_E4M3", 8, DType::kF8E4M3},
    {"BOOL", 8, std::nullopt},        {"U8", 8, std::nullopt},      {"I8", 8, DType::kI8},
    {"F8_E5M2", 8, std::nullopt},     {"F8_E8M0", 8, std::nullopt}, {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt}, {"I16", 16, std::nullopt},    {"U16", 16, std::nullopt},
    {"F16", 16, DType::kF16},         {"I32", 32, std::nullopt},    {"U32", 32, std::nullopt},
    {"C64", 64, std::nullopt},        {"F64", 64, std::nullopt},    {"I64", 64, std::nullopt},
    {"U64", 64, std::nullopt},        {"F4", 4, std::nullopt},      {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
};

const DTypeEntry* FindDType(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const DTypeEntry& entry) { return entry.name == name; });
  return found == std::end(kDTypes) ? nullptr : found;
}

// Handles the header event by event, so that a hostile header never becomes a tree in memory.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  explicit HeaderHandler(std::string label) : label_(std::move(label)) {}

  // In header order; file_offset is still relative to the data.
  std::vector<TensorInfo>& tensors() { return tensors_; }
  const absl::Status& status() const { return status_; }

  void AppendWarnings(std::vector<std::string>* warnings) const {
    if (warnings == nullptr || extra_fields_ == 0) return;
    warnings->push_back(absl::StrCat(label_, ": ", extra_fields_, " unknown field(s) of tensors ignored, the first is ",
                                     first_extra_field_));
  }

  bool null() override { return Scalar("null"); }
  bool boolean(bool) override { return Scalar("a boolean"); }
  bool number_integer(int64_t value) override {
    return state_ == State::kArray ? Fail(absl::StrCat(value, " is negative")) : Scalar("a number");
  }
  bool number_unsigned(uint64_t value) override {
    if (state_ != State::kArray) return Scalar("a number");
    if (value > kMaxInteger) return Fail(absl::StrCat(value, " is above 2^48"));
    integers_->push_back(static_cast<int64_t>(value));
    if (integers_->size() > kMaxRank) return Fail(absl::StrCat("more than ", kMaxRank, " values"));
    return true;
  }
  bool number_float(double, const std::string& text) override {
    return state_ == State::kArray
               ? Fail(absl::StrCat(text::Printable(text), " is fractional, in exponent form or too large"))
               : Scalar("a number");
  }
  bool string(std::string& value) override {
    if (state_ == State::kMetadata) return true;
    if (state_ != State::kEntry || field_ != "dtype") return Scalar("a string");
    dtype_ = FindDType(value);
    if (dtype_ == nullptr) return Fail(absl::StrCat("unknown dtype ", text::Quoted(value)));
    return true;
  }
  bool binary(json::binary_t&) override { return Scalar("a binary value"); }

  bool start_object(size_t) override {
    switch (state_) {
      case State::kStart:
        state_ = State::kRoot;
        return true;
      case State::kRoot:
        fields_.clear();
        state_ = name_ == kMetadataKey ? State::kMetadata : State::kEntry;
        if (state_ == State::kEntry) BeginEntry();
        return true;
      case State::kSkip:
        ++skip_depth_;
        return true;
      default:
        return StartSkip("an object");
    }
  }
  bool start_array(size_t) override {
    if (state_ == State::kSkip) {
      ++skip_depth_;
      return true;
    }
    if (state_ != State::kEntry || (field_ != "shape" && field_ != "data_offsets")) return StartSkip("an array");
    integers_ = field_ == "shape" ? &entry_.shape : &offsets_;
    state_ = State::kArray;
    return true;
  }
  bool key(std::string& name) override {
    if (state_ == State::kSkip) return true;
    if (state_ == State::kRoot) {
      name_ = name;
      field_.clear();
      return names_.insert(name).second || FailFile(absl::StrCat("duplicate key ", text::Quoted(name)));
    }
    field_ = name;
    if (!fields_.insert(name).second) return Fail("duplicate key");
    if (state_ == State::kEntry && !IsKnownField() && extra_fields_++ == 0) {
      first_extra_field_ = absl::StrCat(text::Quoted(field_), " of tensor ", text::Quoted(name_));
    }
    return true;
  }
  bool end_object() override {
    if (state_ == State::kSkip) return EndSkip();
    if (state_ == State::kEntry && !EndEntry()) return false;
    state_ = state_ == State::kRoot ? State::kEnd : State::kRoot;
    return true;
  }
  bool end_array() override {
    if (state_ == State::kSkip) return EndSkip();
    state_ = State::kEntry;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return FailFile(absl::StrCat("the header is not valid JSON: ", text::Printable(error.what())));
  }

 private:
  enum class State { kStart, kRoot, kMetadata, kEntry, kArray, kSkip, kEnd };

  bool IsKnownField() const { return field_ == "dtype" || field_ == "shape" || field_ == "data_offsets"; }

  bool FailFile(absl::string_view message) {
    status_ = absl::InvalidArgumentError(absl::StrCat(label_, ": ", message));
    return false;
  }
  // The message names the tensor and, inside its entry, the field.
  bool Fail(absl::string_view message) {
    const std::string where = field_.empty() ? "" : absl::StrCat(text::Printable(field_), ": ");
    return FailFile(absl::StrCat(name_ == kMetadataKey ? "" : "tensor ", text::Quoted(name_), ": ", where, message));
  }

  // Handles a scalar that no field above takes.
  bool Scalar(absl::string_view what) {
    if (state_ == State::kSkip || (state_ == State::kEntry && !IsKnownField())) return true;
    return Unexpected(what);
  }
  bool StartSkip(absl::string_view what) {
    if (state_ != State::kEntry || IsKnownField()) return Unexpected(what);
    state_ = State::kSkip;
    skip_depth_ = 1;
    return true;
  }
  bool EndSkip() {
    if (--skip_depth_ == 0) state_ = State::kEntry;
    return true;
  }
  bool Unexpected(absl::string_view what) {
    switch (state_) {
      case State::kStart:
        return FailFile(absl::StrCat("the header is ", what, ", not an object"));
      case State::kMetadata:
        return Fail(absl::StrCat("the value is ", what, ", not a string"));
      case State::kRoot:
        return Fail(absl::StrCat("the entry is ", what, ", not an object"));
      case State::kArray:
        return Fail(absl::StrCat("an element is ", what, ", not an integer"));
      default:
        return Fail(absl::StrCat("the value is ", what, field_ == "dtype" ? ", not a string" : ", not an array"));
    }
  }

  void BeginEntry() {
    entry_ = TensorInfo();
    entry_.name = name_;
    offsets_.clear();
    dtype_ = nullptr;
  }

  bool EndEntry() {
    field_.clear();
    for (const char* required : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(required)) return Fail(absl::StrCat(required, " is missing"));
    }
    if (offsets_.size() != 2) return Fail(absl::StrCat("data_offsets has ", offsets_.size(), " values, not 2"));
    if (offsets_[1] < offsets_[0]) return Fail("data_offsets ends before it begins");
    entry_.dtype_name = dtype_->name;
    entry_.element_bits = dtype_->bits;
    entry_.dtype = dtype_->dtype;
    entry_.file_offset = offsets_[0];
    entry_.bytes = offsets_[1] - offsets_[0];
    int64_t bits = dtype_->bits;
    for (const int64_t extent : entry_.shape) {
      if (__builtin_mul_overflow(bits, extent, &bits)) return Fail("the product of the shape overflows");
    }
    if (bits % 8 != 0) return Fail(absl::StrCat("shape and dtype make ", bits, " bits, which is not whole bytes"));
    if (bits / 8 != entry_.bytes) {
      return Fail(absl::StrCat("shape and dtype make ", bits / 8, " bytes, data_offsets ", entry_.bytes));
    }
    tensors_.push_back(std::move(entry_));
    return true;
  }

  const std::string label_;
  absl::Status status_;
  State state_ = State::kStart;
  int64_t skip_depth_ = 0;
  std::string name_;                         // current key of the root object
  std::string field_;                        // current key below it
  absl::flat_hash_set<std::string> names_;   // keys of the root object so far
  absl::flat_hash_set<std::string> fields_;  // keys of the current entry so far
  TensorInfo entry_;
  const DTypeEntry* dtype_ = nullptr;
  std::vector<int64_t> offsets_;
  std::vector<int64_t>* integers_ = nullptr;  // destination of array elements
  std::vector<TensorInfo> tensors_;
  int64_t extra_fields_ = 0;
  std::string first_extra_field_;
};

// The JSON library skips a byte order mark and stops at a NUL byte; the format allows neither.
absl::Status CheckFrame(std::string_view header, const std::string& label) {
  if (header.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": the header contains a NUL byte"));
  }
  const size_t first = header.find_first_not_of(kJsonWhitespace);
  if (first == std::string_view::npos || header[first] != '{') {
    return absl::InvalidArgumentError(absl::StrCat(label, ": the header is not a JSON object: it must begin with '{'"));
  }
  return absl::OkStatus();
}

absl::Status CheckTiling(const std::vector<TensorInfo>& tensors, int64_t data_bytes, const std::string& label) {
  int64_t end = 0;
  for (const TensorInfo& tensor : tensors) {
    const std::string where = absl::StrCat(label, ": tensor ", text::Quoted(tensor.name), ": ");
    if (tensor.file_offset > end) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "begins at ", tensor.file_offset, ", but no tensor holds the bytes from ", end));
    }
    if (tensor.file_offset < end) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "begins at ", tensor.file_offset, " and overlaps another tensor, which ends at ", end));
    }
    end = tensor.file_offset + tensor.bytes;
    if (end > data_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(where, "ends at ", end, ", but the file has only ", data_bytes,
                                                     " bytes of data: it is truncated, download it again"));
    }
  }
  if (end < data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(label, ": ", data_bytes - end, " bytes at the end of the data belong to no tensor"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TensorInfo>> ParseSafetensorsHeader(std::string_view header, int64_t data_start,
                                                               int64_t data_bytes, const std::string& label,
                                                               std::vector<std::string>* warnings) {
  MOE_RETURN_IF_ERROR(CheckFrame(header, label));
  HeaderHandler handler(label);
  if (!json::sax_parse(header.begin(), header.end(), &handler)) return handler.status();
  handler.AppendWarnings(warnings);
  std::vector<TensorInfo> tensors = std::move(handler.tensors());
  // Empty tensors come before the tensor at the same offset.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.file_offset, a.bytes, a.name) < std::tie(b.file_offset, b.bytes, b.name);
  });
  MOE_RETURN_IF_ERROR(CheckTiling(tensors, data_bytes, label));
  for (TensorInfo& tensor : tensors) tensor.file_offset += data_start;
  return tensors;
}

}  // namespace moestro::checkpoint
