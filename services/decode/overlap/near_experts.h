// Processors near the data, as TriMoE has one on each DIMM: here a thread stands for each. It computes experts where
// they lie in the host's memory, and takes as long as reading them at a given rate would. So a schedule of three
// domains can be seen to run; no such processor is used anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/device/host/pacer.h"
#include "common/kernels/cpu/kernels.h"
#include "common/model/binding.h"
#include "common/platform/worker_pool.h"
#include "services/decode/overlap/cpu_experts.h"
#include "services/decode/overlap/helper_thread.h"

namespace moestro::decode {

class NearExperts {
 public:
  struct Options {
    int64_t units = 0;
    double bytes_per_second = 0;  // that each reads; 0: as fast as it can
    int64_t max_rows = 0;
  };
  // All but the options must outlive it. Throws std::system_error if the system cannot start the threads.
  NearExperts(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
              const Options& options);

  int64_t units() const { return std::ssize(units_); }
  double bytes_per_second() const { return options_.bytes_per_second; }

  // A unit's part of a pass: outputs[i] = expert(x[plan.routed[i].row]). The plan may be empty.
  struct Work {
    const model::ExpertPlan* plan = nullptr;
    float* outputs = nullptr;
  };
  // All units begin theirs. Plans, x and outputs live until Wait returns. Start and Wait in turns, by one thread.
  void Start(int64_t layer, std::span<const Work> work, const uint16_t* x);
  void Wait();

 private:
  struct Unit {
    Unit(const weights::ModelSpec& spec, const model::ModelWeights& weights, const CpuKernels& kernels,
         int64_t max_rows)
        : experts(spec, weights, kernels, pool, max_rows) {}
    WorkerPool pool{1};
    CpuExperts experts;
    device::Pacer pacer{device::SteadyClock()};
    Work work;
    HelperThread thread;  // last, so that it ends first
  };
  void Compute(Unit& unit);

  const Options options_;
  const int64_t expert_bytes_;
  int64_t layer_ = 0;
  const uint16_t* x_ = nullptr;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::function<void()>> runs_;  // of each unit, what its thread does
};

}  // namespace moestro::decode
