#include "common/checkpoint/two_tensors.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/math.h"
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

std::string OtherShape(const TensorInfo& info, const std::vector<int64_t>& expected) {
  return absl::StrCat("shape ", ShapeText(info.shape), ", expected ", ShapeText(expected));
}

std::string NotNamed(const char* what) {
  return absl::StrCat(what,
                      " codes, but quantization_config of config.json does not name them; get the config.json of this "
                      "checkpoint");
}

// Empty: they are words of eight codes in this shape.
std::string OtherWords(const TensorInfo& info, const std::vector<int64_t>& expected) {
  if (info.dtype_name != "I32") return absl::StrCat("dtype ", info.dtype_name, ", expected I32");
  return info.shape == expected ? "" : OtherShape(info, expected);
}

TwoTensorsCheck CheckByRow(const std::vector<int64_t>& shape, const TensorInfo& codes, const TensorInfo& scales,
                           const Quantization& quantization) {
  if (!quantization.int8) {
    return {.problem = NotNamed("I8")};
  }
  if (codes.shape != shape) return {.problem = OtherShape(codes, shape)};
  if (shape.back() > kMaxInt8Columns) {
    return {.problem = absl::StrCat(shape.back(), " columns of I8, at most ", kMaxInt8Columns,
                                    " are supported; get the model with this weight in BF16")};
  }
  if (std::ranges::find(kScaleDTypes, scales.dtype_name) == std::end(kScaleDTypes)) {
    return {.problem = absl::StrCat("dtype ", scales.dtype_name, ", expected ", absl::StrJoin(kScaleDTypes, " or ")),
            .end = kByRow.scales};
  }
  std::vector<int64_t> by_row = shape;
  by_row.back() = 1;
  if (scales.shape == by_row || std::ranges::equal(scales.shape, std::span(by_row).first(by_row.size() - 1))) {
    return {.dtype = DType::kI8};
  }
  return {.problem = absl::StrCat(OtherShape(scales, by_row), ": a scale for each row"), .end = kByRow.scales};
}

std::string NoWholeGroups(int64_t cols, int64_t group) {
  return absl::StrCat(cols, " columns are no multiple of a group of ", group,
                      "; get the model with this weight in BF16");
}

TwoTensorsCheck CheckMxfp4(const TwoTensors& form, const std::vector<int64_t>& shape, const TensorInfo& codes,
                           const TensorInfo& scales) {
  const int64_t group = FormatOf(DType::kMXFP4).sub_block;
  if (shape.back() % group != 0) return {.problem = NoWholeGroups(shape.back(), group)};
  if (codes.shape != CodesShape(form, shape, codes))
    return {.problem = OtherShape(codes, CodesShape(form, shape, codes))};
  if (scales.dtype_name != "U8") {
    return {.problem = absl::StrCat("dtype ", scales.dtype_name, ", expected U8; save the model with such scales"),
            .end = form.scales};
  }
  std::vector<int64_t> by_group = shape;
  by_group.back() /= group;
  if (scales.shape == by_group) return {.dtype = DType::kMXFP4};
  return {.problem = absl::StrCat(OtherShape(scales, by_group), ": config.json has groups of ", group),
          .end = form.scales};
}

// In I4Z, or in I4 where that has these scales. Empty: the scales are of one of the supported types.
std::string CheckInt4Scales(const TensorInfo& scales) {
  if (scales.dtype_name == "BF16" || scales.dtype_name == "F16") return "";
  return absl::StrCat("dtype ", scales.dtype_name, ", expected BF16 or F16; save the model with such scales");
}

int64_t GroupsOfRow(const Int4Groups& groups, int64_t cols) { return groups.size == 0 ? 1 : cols / groups.size; }

TwoTensorsCheck Admit(const Int4Groups& groups, int64_t cols, const TensorInfo& scales) {
  const std::optional<DType> dtype = Int4Format(groups, cols, scales.dtype_name == "BF16");
  if (!dtype) return {.problem = NoWholeGroups(cols, groups.size == 0 ? 32 : groups.size)};
  return {.dtype = *dtype, .group = groups.size == 0 ? cols : groups.size};
}

// Compressed-tensors' may have groups of several sizes, with zero points or without.
TwoTensorsCheck CheckInt4(const std::vector<int64_t>& shape, const PartsOfWeight& parts,
                          std::span<const Int4Groups> admitted) {
  if (std::string problem = CheckInt4Scales(*parts.scales); !problem.empty()) {
    return {.problem = std::move(problem), .end = kPacked.scales};
  }
  const int64_t cols = shape.back();
  std::vector<int64_t> by_group = shape;
  const Int4Groups* found = nullptr;
  for (const Int4Groups& groups : admitted) {
    by_group.back() = GroupsOfRow(groups, cols);
    if (parts.scales->shape != by_group) continue;
    if (found == nullptr || groups.zero_points == (parts.zeros != nullptr)) found = &groups;
  }
  if (found == nullptr) {
    const Int4Groups& first = admitted.front();
    const TwoTensorsCheck whole = Admit(first, cols, *parts.scales);
    if (!whole.problem.empty()) return whole;
    by_group.back() = GroupsOfRow(first, cols);
    const std::string size = first.size == 0 ? "a row" : absl::StrCat(first.size);
    return {.problem = absl::StrCat(OtherShape(*parts.scales, by_group), ": config.json has groups of ", size),
            .end = kPacked.scales};
  }
  if (found->zero_points && parts.zeros == nullptr) {
    return {.problem = "missing, but config.json has symmetric: false", .end = kPacked.zeros};
  }
  if (!found->zero_points && parts.zeros != nullptr) {
    return {.problem = "zero points, but config.json has symmetric: true; get the config.json of this checkpoint",
            .end = kPacked.zeros};
  }
  const TwoTensorsCheck check = Admit(*found, cols, *parts.scales);
  if (!check.problem.empty() || parts.zeros == nullptr) return check;
  if (shape.size() != 2) {
    return {.problem = "zero points of experts in one tensor are not supported; save the experts one by one",
            .end = kPacked.zeros};
  }
  if (parts.zeros->dtype_name == "I8") {
    return {.problem = "zero points in I8 are not supported; save the model with a compressed-tensors that packs them",
            .end = kPacked.zeros};
  }
  const std::vector<int64_t> eight_rows = {CeilDiv(shape.front(), 8), GroupsOfRow(*found, cols)};
  if (std::string problem = OtherWords(*parts.zeros, eight_rows); !problem.empty()) {
    return {.problem = std::move(problem), .end = kPacked.zeros};
  }
  return check;
}

TwoTensorsCheck CheckByInput(const std::vector<int64_t>& shape, const PartsOfWeight& parts,
                             const Quantization& quantization) {
  if (quantization.by_input == ByInput::kNone) return {.problem = NotNamed("INT4")};
  const int64_t rows = shape.front(), cols = shape.back();
  const Int4Groups& groups = quantization.int4.front();
  const bool awq = quantization.by_input == ByInput::kAwq;
  const auto problem_of = [](const char* end, std::string problem) {
    return TwoTensorsCheck{.problem = std::move(problem), .end = end};
  };
  // I4Z whatever the scales: there are always zero points.
  const TwoTensorsCheck check = Admit(groups, cols, *parts.scales);
  if (!check.problem.empty()) return check;
  if (rows % 8 != 0) return {.problem = absl::StrCat(rows, " rows are no multiple of 8; get this weight in BF16")};
  const std::vector<int64_t> words = awq ? std::vector{cols, rows / 8} : std::vector{cols / 8, rows};
  if (std::string problem = OtherWords(*parts.codes, words); !problem.empty()) return {.problem = std::move(problem)};
  if (std::string problem = CheckInt4Scales(*parts.scales); !problem.empty()) {
    return problem_of(kByInput.scales, std::move(problem));
  }
  const int64_t count = GroupsOfRow(groups, cols);
  const std::string of_groups =
      absl::StrCat(": config.json has groups of ", groups.size == 0 ? "a row" : absl::StrCat(groups.size));
  if (const std::vector<int64_t> by_group = {count, rows}; parts.scales->shape != by_group) {
    return problem_of(kByInput.scales, OtherShape(*parts.scales, by_group) + of_groups);
  }
  if (parts.zeros == nullptr) return problem_of(kByInput.zeros, "missing: each group needs a zero point");
  if (std::string problem = OtherWords(*parts.zeros, {count, rows / 8}); !problem.empty()) {
    return problem_of(kByInput.zeros, std::move(problem));
  }
  if (parts.group_of_input == nullptr) {
    if (!quantization.ordered) return check;
    return problem_of(kGroupOfInput, "missing, but config.json has desc_act: true");
  }
  if (std::string problem = OtherWords(*parts.group_of_input, {cols}); !problem.empty()) {
    return problem_of(kGroupOfInput, std::move(problem));
  }
  return check;
}

}  // namespace

std::string TwoTensors::Name(const std::string& weight, const char* end) const {
  if (!by_input) return weight + end;
  return absl::StrCat(absl::StripSuffix(weight, "weight"), end);
}

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

TwoTensorsCheck CheckTwoTensors(const TwoTensors& form, const std::vector<int64_t>& shape, const PartsOfWeight& parts,
                                const Quantization& quantization) {
  const TensorInfo& codes = *parts.codes;
  if (form.by_row) return CheckByRow(shape, codes, *parts.scales, quantization);
  if (form.by_input) return CheckByInput(shape, parts, quantization);
  if (!IsE2M1(codes) && (codes.dtype_name != "I32" || form.in_blocks)) {
    return {.problem = absl::StrCat("dtype ", codes.dtype_name, ", expected U8",
                                    form.in_blocks ? "" : " (MXFP4) or I32 (INT4)")};
  }
  const bool mxfp4 = form.in_blocks ? quantization.blocks : quantization.packed_mxfp4;
  const bool int4 = !quantization.int4.empty() && quantization.by_input == ByInput::kNone;
  if (IsE2M1(codes) ? !mxfp4 : !int4) return {.problem = NotNamed(IsE2M1(codes) ? "MXFP4" : "INT4")};
  if (IsE2M1(codes)) return CheckMxfp4(form, shape, codes, *parts.scales);
  if (codes.shape != CodesShape(form, shape, codes))
    return {.problem = OtherShape(codes, CodesShape(form, shape, codes))};
  return CheckInt4(shape, parts, quantization.int4);
}

}  // namespace moestro::checkpoint
