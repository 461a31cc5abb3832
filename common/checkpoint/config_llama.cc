#include "common/checkpoint/config_families.h"

namespace moestro::checkpoint {

// Llama 3 and models of its architecture: grouped queries without norms, and a dense MLP in every layer.
void ReadLlama(text::JsonFields& config, weights::ModelSpec* spec) {
  ReadGroupedQueries(config, spec);
  spec->heads_without_norms = 1;
  spec->intermediate_size = config.Int("intermediate_size", 1, kMaxIntermediate);
  spec->first_dense_layers = spec->num_layers;
}

}  // namespace moestro::checkpoint
