// Four-bit weights as compressed-tensors and gpt-oss publish them, against the values of their libraries.
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/tensor/block_rows.h"
#include "gtest/gtest.h"

namespace moestro {
namespace {

using nlohmann::json;

// tests/golden/blocks/make_two_tensors.py wrote it.
json Golden() {
  std::ifstream file("tests/golden/blocks/two_tensors.json");
  EXPECT_TRUE(file.is_open()) << "run the test from the root of the repository";
  return json::parse(file);
}

DType TypeOf(const std::string& name) {
  for (const DType type : {DType::kI4G32, DType::kI4G128, DType::kMXFP4}) {
    if (name == DTypeName(type)) return type;
  }
  ADD_FAILURE() << name;
  return DType::kMXFP4;
}

TEST(JoinCodesAndScales, RowsHaveTheLibrarysValues) {
  const json golden = Golden();
  ASSERT_EQ(golden["cases"].size(), 4);
  for (const json& one : golden["cases"]) {
    SCOPED_TRACE(one["origin"].get<std::string>());
    const DType type = TypeOf(one["dtype"]);
    const int64_t rows = one["rows"], cols = one["cols"];
    const auto bytes = [&](const char* key) { return absl::HexStringToBytes(one[key].get<std::string>()); };
    const std::string codes = bytes("codes"), scales = bytes("scales"), values = bytes("values");
    const int64_t row_bytes = RowBytes(type, cols);
    ASSERT_EQ(codes.size() + scales.size(), rows * row_bytes);
    std::vector<uint8_t> row(static_cast<size_t>(row_bytes));
    std::vector<float> weights(static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      const auto part = [&](const std::string& all) {
        return reinterpret_cast<const uint8_t*>(all.data()) + std::ssize(all) / rows * r;
      };
      JoinCodesAndScales(type, part(codes), part(scales), cols, row.data());
      EXPECT_EQ(FindBadScale(type, row.data(), cols), nullptr);
      DequantizeRow(type, row.data(), cols, weights.data());
      for (int64_t c = 0; c < cols; ++c) {
        float expected;
        std::memcpy(&expected, part(values) + c * 4, sizeof expected);
        ASSERT_EQ(weights[c], expected) << "row " << r << ", column " << c;
      }
    }
  }
}

}  // namespace
}  // namespace moestro
