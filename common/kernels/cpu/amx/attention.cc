#include "common/kernels/cpu/amx/attention.h"

#include "common/kernels/cpu/amx/kernels.h"
#include "common/kernels/cpu/amx/tiles.h"

namespace moestro::amx {

void AttendToken(const KvBlock& kv, int64_t tokens, const TokenQueries& queries) { Attend<Tiles>(kv, tokens, queries); }

}  // namespace moestro::amx
