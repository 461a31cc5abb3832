#include "common/checkpoint/two_tensors.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/tensor/block_format.h"

namespace moestro::checkpoint {
namespace {

constexpr int64_t kBlockInputs = 32, kBlockBytes = 16;  // the last two dimensions of kBlocks

bool IsE2M1(const TensorInfo& codes) { return codes.dtype_name == "U8"; }

std::vector<int64_t> CodesShape(const TwoTensors& form, std::vector<int64_t> shape, const TensorInfo& codes) {
  int64_t& cols = shape.back();
  if (form.in_blocks) {
    cols /= kBlockInputs;
    shape.push_back(kBlockBytes);
  } else {
    cols /= IsE2M1(codes) ? 2 : 8;
  }
  return shape;
}

std::vector<int64_t> ScalesShape(std::vector<int64_t> shape, DType dtype) {
  shape.back() /= FormatOf(dtype).sub_block;
  return shape;
}

// What config.json lets these codes be.
std::vector<DType> Admitted(const TwoTensors& form, const TensorInfo& codes, const Quantization& quantization) {
  if (form.in_blocks) return quantization.blocks ? std::vector{DType::kMXFP4} : std::vector<DType>();
  std::vector<DType> dtypes = quantization.packed;
  std::erase_if(dtypes, [&](DType dtype) { return (dtype == DType::kMXFP4) != IsE2M1(codes); });
  return dtypes;
}

std::string OtherShape(const TensorInfo& info, const std::vector<int64_t>& expected) {
  return absl::StrCat("shape ", ShapeText(info.shape), ", expected ", ShapeText(expected));
}

TwoTensorsCheck CheckByRow(const std::vector<int64_t>& shape, const TensorInfo& codes, const TensorInfo& scales,
                           const Quantization& quantization) {
  if (!quantization.int8) {
    return {.problem =
                "I8 codes, but quantization_config of config.json does not name them; get the config.json of this "
                "checkpoint"};
  }
  if (codes.shape != shape) return {.problem = OtherShape(codes, shape)};
  if (shape.back() > kMaxInt8Columns) {
    return {.problem = absl::StrCat(shape.back(), " columns of I8, at most ", kMaxInt8Columns,
                                    " are supported; get the model with this weight in BF16")};
  }
  if (std::ranges::find(kScaleDTypes, scales.dtype_name) == std::end(kScaleDTypes)) {
    return {.problem = absl::StrCat("dtype ", scales.dtype_name, ", expected ", absl::StrJoin(kScaleDTypes, " or ")),
            .of_scales = true};
  }
  std::vector<int64_t> by_row = shape;
  by_row.back() = 1;
  if (scales.shape == by_row || std::ranges::equal(scales.shape, std::span(by_row).first(by_row.size() - 1))) {
    return {.dtype = DType::kI8};
  }
  return {.problem = absl::StrCat(OtherShape(scales, by_row), ": a scale for each row"), .of_scales = true};
}

}  // namespace

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

TwoTensorsCheck CheckTwoTensors(const TwoTensors& form, const std::vector<int64_t>& shape, const TensorInfo& codes,
                                const TensorInfo& scales, const Quantization& quantization) {
  if (form.by_row) return CheckByRow(shape, codes, scales, quantization);
  const auto of_codes = [](std::string problem) { return TwoTensorsCheck{.problem = std::move(problem)}; };
  const auto of_scales = [](std::string problem) {
    return TwoTensorsCheck{.problem = std::move(problem), .of_scales = true};
  };
  if (!IsE2M1(codes) && (codes.dtype_name != "I32" || form.in_blocks)) {
    return of_codes(
        absl::StrCat("dtype ", codes.dtype_name, ", expected U8", form.in_blocks ? "" : " (MXFP4) or I32 (INT4)"));
  }
  const std::vector<DType> admitted = Admitted(form, codes, quantization);
  if (admitted.empty()) {
    return of_codes(absl::StrCat(IsE2M1(codes) ? "MXFP4" : "INT4",
                                 " codes, but quantization_config of config.json does not name them; get the "
                                 "config.json of this checkpoint"));
  }
  const int64_t group = FormatOf(admitted.front()).sub_block;
  if (shape.back() % group != 0) {
    return of_codes(absl::StrCat(shape.back(), " columns are no multiple of a group of ", group,
                                 "; get the model with this weight in BF16"));
  }
  if (codes.shape != CodesShape(form, shape, codes)) return of_codes(OtherShape(codes, CodesShape(form, shape, codes)));
  const char* const scale_dtype = IsE2M1(codes) ? "U8" : "BF16";
  if (scales.dtype_name != scale_dtype) {
    return of_scales(
        absl::StrCat("dtype ", scales.dtype_name, ", expected ", scale_dtype, "; save the model with such scales"));
  }
  for (const DType dtype : admitted) {
    const bool whole = shape.back() % FormatOf(dtype).row_block == 0;
    if (whole && scales.shape == ScalesShape(shape, dtype)) return {.dtype = dtype};
  }
  return of_scales(
      absl::StrCat(OtherShape(scales, ScalesShape(shape, admitted.front())), ": config.json has groups of ", group));
}

}  // namespace moestro::checkpoint
