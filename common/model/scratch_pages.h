// Pages of one sequence for a measurement alone.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/math.h"
#include "common/kv/pages.h"
#include "common/model/buffer.h"
#include "common/weights/model_spec.h"

namespace moestro::model {

// Zeroed memory for `rows` tokens after `before` others, which is whole blocks. All of these blocks are one page, which
// a forward pass reads and does not write.
class ScratchPages {
 public:
  ScratchPages(const weights::ModelSpec& spec, int64_t before, int64_t rows)
      : geometry_{.num_layers = spec.num_layers,
                  .kv_dim = spec.kv_dim(),
                  .kv_heads = spec.num_kv_heads,
                  .page_count = (before > 0 ? 1 : 0) + CeilDiv(rows, kv::kPageTokens)},
        memory_(geometry_.page_count * geometry_.page_bytes()),
        list_(static_cast<size_t>(before / kv::kPageTokens)) {
    for (uint32_t page = before > 0 ? 1 : 0; page < geometry_.page_count; ++page) list_.push_back(page);
  }
  kv::KvPages pages() const { return {geometry_, memory_.get(), list_}; }

 private:
  kv::KvGeometry geometry_;
  Buffer<uint8_t> memory_;
  std::vector<uint32_t> list_;
};

}  // namespace moestro::model
