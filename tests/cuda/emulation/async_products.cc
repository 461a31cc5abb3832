#include "tests/cuda/emulation/async_products.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace moestro::emulation {

std::string ThreadProducts::Access(const void* address, int64_t bytes, bool write) {
  const auto from = reinterpret_cast<uintptr_t>(address);
  const uintptr_t to = from + static_cast<uintptr_t>(bytes);
  for (const Accumulators& of : accumulators_) {
    const auto begin = reinterpret_cast<uintptr_t>(of.d);
    if (Range{begin, begin + of.values.size() * sizeof(float)}.Meets(from, to)) {
      return "access to an accumulator of wgmma before the wait for its group";
    }
  }
  for (const Operand& of : operands_) {
    if (write && of.range.Meets(from, to)) return "write to operand A of wgmma before the wait for its group";
  }
  touched_.push_back({from, to});
  return {};
}

std::string ThreadProducts::Begin(float* d, int count, const uint32_t* a) {
  if (!fenced_) return "wgmma without a wgmma.fence before it";
  const auto of_d = reinterpret_cast<uintptr_t>(d), of_a = reinterpret_cast<uintptr_t>(a);
  const uintptr_t end_of_d = of_d + static_cast<uintptr_t>(count) * sizeof(float), end_of_a = of_a + 16;
  for (const Range& range : touched_) {
    if (range.Meets(of_d, end_of_d)) return "wgmma after an access to its accumulators, without wgmma.fence between";
    if (range.Meets(of_a, end_of_a)) return "wgmma after an access to its operand A, without wgmma.fence between";
  }
  operands_.push_back({{of_a, end_of_a}, commits_});
  for (Accumulators& of : accumulators_) {
    if (of.d != d) continue;
    of.group = commits_;
    return {};
  }
  accumulators_.push_back({d, std::vector<float>(d, d + count), commits_});
  std::fill_n(d, count, std::numeric_limits<float>::quiet_NaN());
  return {};
}

void ThreadProducts::Fence() {
  fenced_ = true;
  touched_.clear();
}

std::vector<float>& ThreadProducts::Values(const float* d) {
  return std::find_if(accumulators_.begin(), accumulators_.end(), [d](const auto& of) { return of.d == d; })->values;
}

std::pair<int64_t, int64_t> ThreadProducts::Wait(int64_t groups) {
  const int64_t first = done_;
  done_ = std::max(done_, commits_ - groups);
  for (const Accumulators& of : accumulators_) {
    if (of.group < done_) std::memcpy(of.d, of.values.data(), of.values.size() * sizeof(float));
  }
  std::erase_if(accumulators_, [this](const auto& of) { return of.group < done_; });
  std::erase_if(operands_, [this](const auto& of) { return of.group < done_; });
  return {first, done_};
}

// Bits 0..13, 16..29 and 32..45 are in units of 16 bytes; 49..51: the base offset; 62, 63: 0: not swizzled, 1, 2, 3:
// rows of 128, 64 and 32 bytes.
ColumnsDescriptor::ColumnsDescriptor(uint64_t bits)
    : begin(static_cast<int64_t>(bits & 0x3fff) * 16),
      leading(static_cast<int64_t>(bits >> 16 & 0x3fff) * 16),
      stride(static_cast<int64_t>(bits >> 32 & 0x3fff) * 16),
      base_offset(static_cast<int>(bits >> 49 & 7)),
      row_bytes(bits >> 62 == 0 ? 16 : 256 >> (bits >> 62)) {}

std::string ColumnsDescriptor::Fault(bool transposed) const {
  if (transposed && row_bytes != 128) return "transposed rows of other than 128 bytes are not modelled";
  if (base_offset != 0) return "a base offset is not modelled";
  // The swizzle is of addresses: rows must begin where their number within 8 is that of the address.
  if (row_bytes > 16 && begin % (8 * row_bytes) >= row_bytes) return "swizzled rows that are not aligned to 8 of them";
  return {};
}

int64_t ColumnsDescriptor::Swizzled(int64_t address) const {
  return address ^ ((address >> 7 & (row_bytes / 16 - 1)) << 4);
}

int64_t ColumnsDescriptor::Address(int row, int chunk) const {
  const int64_t at = begin + row / 8 * stride + row % 8 * row_bytes;
  return row_bytes == 16 ? at + chunk * leading : Swizzled(at + chunk * 16);
}

int64_t ColumnsDescriptor::TransposedAddress(int row, int chunk) const {
  return Swizzled(begin + chunk / 8 * leading + row / 8 * stride + row % 8 * row_bytes + chunk % 8 * 16);
}

}  // namespace moestro::emulation
