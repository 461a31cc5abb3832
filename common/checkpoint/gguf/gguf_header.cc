#include "common/checkpoint/gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/text/json/quoted.h"

namespace moestro::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in the file");

constexpr int64_t kReadBytes = int64_t{1} << 20;
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // length, a byte of name, type, a value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // length, a byte of name, dimensions, one, type, offset
constexpr uint64_t kMaxKeyLength = 65535;                    // of the format
constexpr uint32_t kMaxDimensions = 4;                       // of ggml
constexpr uint64_t kMaxExtent = uint64_t{1} << 48;
constexpr char kAlignmentKey[] = "general.alignment";
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = int64_t{1} << 20;

// Types of values, by their number in the file.
enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
constexpr uint64_t kLeastBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // of a value

// The types of ggml whose numbers are in use.
struct GgmlType {
  uint32_t id;
  const char* name;
  int64_t block;  // elements
  int64_t block_bytes;
  std::optional<DType> dtype;
};
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", 1, 4, DType::kF32},          {1, "F16", 1, 2, DType::kF16},
    {2, "Q4_0", 32, 18, DType::kQ4_0},      {3, "Q4_1", 32, 20, DType::kQ4_1},
    {6, "Q5_0", 32, 22, DType::kQ5_0},      {7, "Q5_1", 32, 24, DType::kQ5_1},
    {8, "Q8_0", 32, 34, DType::kQ8_0},      {9, "Q8_1", 32, 36, std::nullopt},
    {10, "Q2_K", 256, 84, std::nullopt},    {11, "Q3_K", 256, 110, std::nullopt},
    {12, "Q4_K", 256, 144, DType::kQ4K},    {13, "Q5_K", 256, 176, DType::kQ5K},
    {14, "Q6_K", 256, 210, DType::kQ6K},    {15, "Q8_K", 256, 292, std::nullopt},
    {16, "IQ2_XXS", 256, 66, std::nullopt}, {17, "IQ2_XS", 256, 74, std::nullopt},
    {18, "IQ3_XXS", 256, 98, std::nullopt}, {19, "IQ1_S", 256, 50, std::nullopt},
    {20, "IQ4_NL", 32, 18, std::nullopt},   {21, "IQ3_S", 256, 110, std::nullopt},
    {22, "IQ2_S", 256, 82, std::nullopt},   {23, "IQ4_XS", 256, 136, std::nullopt},
    {24, "I8", 1, 1, std::nullopt},         {25, "I16", 1, 2, std::nullopt},
    {26, "I32", 1, 4, std::nullopt},        {27, "I64", 1, 8, std::nullopt},
    {28, "F64", 1, 8, std::nullopt},        {29, "IQ1_M", 256, 56, std::nullopt},
    {30, "BF16", 1, 2, DType::kBF16},       {34, "TQ1_0", 256, 54, std::nullopt},
    {35, "TQ2_0", 256, 66, std::nullopt},   {39, "MXFP4", 32, 17, DType::kMXFP4},
    {40, "NVFP4", 64, 36, std::nullopt},    {41, "Q1_0", 128, 18, std::nullopt},
};

// The elements of an array of values of type T.
template <typename T>
using Element = std::conditional_t<std::is_same_v<T, bool> || std::is_same_v<T, float> || std::is_same_v<T, double> ||
                                       std::is_same_v<T, std::string>,
                                   T, int64_t>;

class Parser {
 public:
  explicit Parser(const ReadOnlyFile& file) : file_(file), metadata_(file.path()) {}

  absl::StatusOr<GgufHeader> Parse() && {
    MOE_RETURN_IF_ERROR(ReadVersion());
    MOE_ASSIGN_OR_RETURN(const uint64_t tensors, Number<uint64_t>("the number of tensors"));
    MOE_ASSIGN_OR_RETURN(const uint64_t keys, Number<uint64_t>("the number of metadata keys"));
    MOE_RETURN_IF_ERROR(CheckCount("tensors", tensors, kMinTensorBytes));
    MOE_RETURN_IF_ERROR(CheckCount("metadata keys", keys, kMinKeyBytes));
    for (uint64_t i = 0; i < keys; ++i) MOE_RETURN_IF_ERROR(ReadKey());
    MOE_RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < tensors; ++i) MOE_RETURN_IF_ERROR(ReadTensor());
    MOE_RETURN_IF_ERROR(PlaceTensors());
    return GgufHeader{std::move(metadata_), std::move(tensors_),
                      HashHex(std::string_view(bytes_).substr(0, static_cast<size_t>(position_)))};
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", what));
  }
  absl::Status WrongTensor(const std::string& name, absl::string_view what) const {
    return Wrong(absl::StrCat("tensor ", text::Quoted(name), ": ", what));
  }

  // Bytes that the header may still have.
  uint64_t Left() const { return static_cast<uint64_t>(std::min(file_.size(), kMaxGgufHeaderBytes) - position_); }

  // Why `what` does not fit.
  absl::Status TooLong(absl::string_view what) const {
    if (file_.size() > kMaxGgufHeaderBytes) {
      return Wrong(absl::StrCat(what, " does not fit into the ", kMaxGgufHeaderBytes,
                                " bytes that a header may have; the file is damaged or no model"));
    }
    return Wrong(absl::StrCat(what, " does not fit into the file of ", file_.size(),
                              " bytes: it is truncated or damaged, download it again"));
  }

  absl::Status CheckCount(absl::string_view what, uint64_t count, uint64_t least_bytes) const {
    return count <= Left() / least_bytes ? absl::OkStatus() : TooLong(absl::StrCat("a list of ", count, " ", what));
  }

  // The next `count` bytes; valid until the next call.
  absl::StatusOr<std::string_view> Take(uint64_t count, absl::string_view what) {
    if (count > Left()) return TooLong(what);
    const auto end = position_ + static_cast<int64_t>(count);
    const auto have = static_cast<int64_t>(bytes_.size());
    if (end > have) {
      const int64_t more = std::min(std::max(kReadBytes, end - have), file_.size() - have);
      bytes_.resize(static_cast<size_t>(have + more));
      MOE_RETURN_IF_ERROR(file_.ReadAt(have, bytes_.data() + have, more));
    }
    const std::string_view taken = std::string_view(bytes_).substr(static_cast<size_t>(position_), count);
    position_ = end;
    return taken;
  }

  template <typename T>
  absl::StatusOr<T> Number(absl::string_view what) {
    MOE_ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T), what));
    T number;
    std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  }

  absl::StatusOr<std::string> String(absl::string_view what) {
    MOE_ASSIGN_OR_RETURN(const uint64_t length, Number<uint64_t>(what));
    MOE_ASSIGN_OR_RETURN(const std::string_view bytes, Take(length, what));
    return std::string(bytes);
  }

  absl::Status ReadVersion() {
    MOE_ASSIGN_OR_RETURN(const std::string_view magic, Take(kGgufMagic.size(), "the magic number"));
    if (magic != kGgufMagic) return Wrong("does not begin with GGUF: this is no GGUF file");
    MOE_ASSIGN_OR_RETURN(const uint32_t version, Number<uint32_t>("the version"));
    if (version == 2 || version == 3) return absl::OkStatus();
    if ((version & 0xffff) == 0) {
      return Wrong("is big-endian, which is not supported; get the little-endian file of the model");
    }
    return Wrong(absl::StrCat("version ", version, " is not supported, only 2 and 3; convert the model again"));
  }

  absl::Status ReadKey() {
    MOE_ASSIGN_OR_RETURN(const uint64_t length, Number<uint64_t>("a metadata key"));
    if (length > kMaxKeyLength) {
      return Wrong(absl::StrCat("a metadata key of ", length, " bytes is longer than ", kMaxKeyLength));
    }
    MOE_ASSIGN_OR_RETURN(const std::string_view bytes, Take(length, "a metadata key"));
    std::string key(bytes);
    if (key.empty()) return Wrong("a metadata key is empty");
    MOE_ASSIGN_OR_RETURN(const uint32_t type, Number<uint32_t>(KeyLabel(key)));
    absl::StatusOr<GgufValue> value = Value(key, type);
    MOE_RETURN_IF_ERROR(value);
    if (!metadata_.Insert(key, *std::move(value))) return metadata_.Wrong(key, "is there twice");
    return absl::OkStatus();
  }

  static std::string KeyLabel(const std::string& key) { return absl::StrCat("metadata ", text::Quoted(key)); }

  absl::Status UnknownType(const std::string& key, uint32_t type) const {
    return metadata_.Wrong(key, absl::StrCat("has unknown type ", type));
  }

  absl::StatusOr<GgufValue> Value(const std::string& key, uint32_t type) {
    if (type != kArray) {
      return Dispatch(key, type, [&](auto tag) -> absl::StatusOr<GgufValue> {
        MOE_ASSIGN_OR_RETURN(auto value, Single<decltype(tag)>(key));
        return GgufValue(std::move(value));
      });
    }
    MOE_ASSIGN_OR_RETURN(const uint32_t element, Number<uint32_t>(KeyLabel(key)));
    MOE_ASSIGN_OR_RETURN(const uint64_t count, Number<uint64_t>(KeyLabel(key)));
    if (element == kArray) return metadata_.Wrong(key, "is an array of arrays, which is not supported");
    if (element >= std::size(kLeastBytes)) return UnknownType(key, element);
    if (count > Left() / kLeastBytes[element])
      return TooLong(absl::StrCat(KeyLabel(key), " with ", count, " elements"));
    array_elements_ += static_cast<int64_t>(count);
    if (array_elements_ > kMaxGgufArrayElements) {
      return metadata_.Wrong(
          key, absl::StrCat("all arrays up to this one have more than ", kMaxGgufArrayElements, " elements"));
    }
    return Dispatch(key, element, [&](auto tag) -> absl::StatusOr<GgufValue> {
      std::vector<Element<decltype(tag)>> values;
      values.reserve(count);
      for (uint64_t i = 0; i < count; ++i) {
        MOE_ASSIGN_OR_RETURN(auto value, Single<decltype(tag)>(key));
        values.push_back(std::move(value));
      }
      return GgufValue(std::move(values));
    });
  }

  // Calls read(T()), where T is the type of a value that is no array.
  template <typename Read>
  absl::StatusOr<GgufValue> Dispatch(const std::string& key, uint32_t type, const Read& read) {
    switch (type) {
      case kU8:
        return read(uint8_t());
      case kI8:
        return read(int8_t());
      case kU16:
        return read(uint16_t());
      case kI16:
        return read(int16_t());
      case kU32:
        return read(uint32_t());
      case kI32:
        return read(int32_t());
      case kF32:
        return read(float());
      case kBool:
        return read(bool());
      case kString:
        return read(std::string());
      case kU64:
        return read(uint64_t());
      case kI64:
        return read(int64_t());
      case kF64:
        return read(double());
      default:
        return UnknownType(key, type);
    }
  }

  template <typename T>
  absl::StatusOr<Element<T>> Single(const std::string& key) {
    if constexpr (std::is_same_v<T, std::string>) {
      return String(KeyLabel(key));
    } else if constexpr (std::is_same_v<T, bool>) {
      MOE_ASSIGN_OR_RETURN(const uint8_t value, Number<uint8_t>(KeyLabel(key)));
      if (value > 1) return metadata_.Wrong(key, absl::StrCat("has a boolean of ", value));
      return value == 1;
    } else {
      MOE_ASSIGN_OR_RETURN(const T value, Number<T>(KeyLabel(key)));
      if constexpr (std::is_same_v<T, uint64_t>) {
        if (value > std::numeric_limits<int64_t>::max())
          return metadata_.Wrong(key, absl::StrCat(value, " is too large"));
      }
      return static_cast<Element<T>>(value);
    }
  }

  absl::Status ReadAlignment() {
    if (!metadata_.Has(kAlignmentKey)) return absl::OkStatus();
    MOE_ASSIGN_OR_RETURN(alignment_, metadata_.Integer(kAlignmentKey, 1, kMaxAlignment));
    if ((alignment_ & (alignment_ - 1)) == 0) return absl::OkStatus();
    return metadata_.Wrong(kAlignmentKey, absl::StrCat(alignment_, " is no power of two"));
  }

  absl::Status ReadTensor() {
    TensorInfo tensor;
    MOE_ASSIGN_OR_RETURN(tensor.name, String("the name of a tensor"));
    const std::string label = absl::StrCat("tensor ", text::Quoted(tensor.name));
    if (tensor.name.empty()) return Wrong("the name of a tensor is empty");
    if (!names_.insert(tensor.name).second) return WrongTensor(tensor.name, "is there twice");
    MOE_ASSIGN_OR_RETURN(const uint32_t dimensions, Number<uint32_t>(label));
    if (dimensions == 0 || dimensions > kMaxDimensions) {
      return WrongTensor(tensor.name, absl::StrCat("has ", dimensions, " dimensions, not 1 to ", kMaxDimensions));
    }
    for (uint32_t i = 0; i < dimensions; ++i) {
      MOE_ASSIGN_OR_RETURN(const uint64_t extent, Number<uint64_t>(label));
      if (extent == 0 || extent > kMaxExtent) {
        return WrongTensor(tensor.name, absl::StrCat("has a dimension of ", extent));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
    }
    MOE_ASSIGN_OR_RETURN(const uint32_t id, Number<uint32_t>(label));
    MOE_ASSIGN_OR_RETURN(const uint64_t offset, Number<uint64_t>(label));
    MOE_RETURN_IF_ERROR(SetType(id, &tensor));
    if (offset > static_cast<uint64_t>(file_.size()) || offset % static_cast<uint64_t>(alignment_) != 0) {
      return WrongTensor(tensor.name, absl::StrCat("begins at byte ", offset,
                                                   " of the data, which is not in the file or no multiple of ",
                                                   alignment_, ": the file is truncated or damaged"));
    }
    tensor.file_offset = static_cast<int64_t>(offset);
    tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // Type and size.
  absl::Status SetType(uint32_t id, TensorInfo* tensor) const {
    const auto* const type = std::ranges::find(kGgmlTypes, id, &GgmlType::id);
    if (type == std::end(kGgmlTypes)) {
      return WrongTensor(tensor->name,
                         absl::StrCat("has unknown type ", id, ", newer or of a fork of llama.cpp; ", kGetOtherTypes));
    }
    tensor->dtype_name = type->name;
    tensor->dtype = type->dtype;
    if (type->block == 1) tensor->element_bits = 8 * type->block_bytes;
    const int64_t row = tensor->shape.back();
    if (row % type->block != 0) {
      return WrongTensor(tensor->name, absl::StrCat("has rows of ", row, " elements, not whole blocks of ", type->block,
                                                    " (", type->name, ")"));
    }
    tensor->bytes = row / type->block * type->block_bytes;  // below 2^52
    for (size_t i = 0; i + 1 < tensor->shape.size(); ++i) {
      if (__builtin_mul_overflow(tensor->bytes, tensor->shape[i], &tensor->bytes)) {
        return WrongTensor(tensor->name, "its size overflows");
      }
    }
    return absl::OkStatus();
  }

  // From offsets in the data to those in the file.
  absl::Status PlaceTensors() {
    const int64_t data_start = (position_ + alignment_ - 1) / alignment_ * alignment_;
    std::vector<TensorInfo*> order;
    for (TensorInfo& tensor : tensors_) {
      tensor.file_offset += data_start;
      if (tensor.file_offset > file_.size() || tensor.bytes > file_.size() - tensor.file_offset) {
        return WrongTensor(tensor.name, absl::StrCat(tensor.bytes, " bytes from byte ", tensor.file_offset,
                                                     " on are not in the file of ", file_.size(),
                                                     " bytes: it is truncated, download it again"));
      }
      order.push_back(&tensor);
    }
    std::ranges::sort(order, {}, &TensorInfo::file_offset);
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->file_offset + order[i - 1]->bytes > order[i]->file_offset) {
        return WrongTensor(order[i]->name, absl::StrCat("overlaps tensor ", text::Quoted(order[i - 1]->name)));
      }
    }
    return absl::OkStatus();
  }

  const ReadOnlyFile& file_;
  std::string bytes_;  // from the start of the file
  int64_t position_ = 0;
  GgufMetadata metadata_;
  int64_t array_elements_ = 0;
  int64_t alignment_ = kDefaultAlignment;
  absl::flat_hash_set<std::string> names_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

absl::StatusOr<GgufHeader> ReadGgufHeader(const ReadOnlyFile& file) { return Parser(file).Parse(); }

}  // namespace moestro::checkpoint
