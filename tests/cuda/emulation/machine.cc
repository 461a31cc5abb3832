#include "tests/cuda/emulation/machine.h"

#include <atomic>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "tests/cuda/emulation/async_products.h"
#include "tests/cuda/emulation/global_memory.h"
#include "tests/cuda/emulation/shared_shadow.h"

// The section of __shared__ variables (cuda_runtime.h), and memory that the program cannot write; the linker sets all.
extern "C" {
extern uint8_t __start_moestro_shared[] __attribute__((weak));
extern uint8_t __stop_moestro_shared[] __attribute__((weak));
extern const uint8_t __executable_start[];
extern const uint8_t __data_start[];
}

namespace moestro::emulation {

std::atomic<uintptr_t> running_stack = 0;
std::atomic<bool> watches_registers = false;

namespace {

constexpr int kGroupLanes = 4 * kWarpLanes;  // of the warps that multiply together

void SetStack(uintptr_t begin) { running_stack.store(begin, std::memory_order_relaxed); }

// State of this thread. Host code of kernel sources uses it too, from any thread.
thread_local bool runs_kernels = false;

std::map<std::string, LaunchShape> last_shapes;  // by kernel; guarded by Turn()

enum class State { kReady, kAtBarrier, kAtWarpOperation, kAtProduct, kDone };

struct Copy {
  uint8_t* to = nullptr;
  int size = 0;
  uint8_t bytes[16] = {};
};

struct Thread {
  boost::context::fiber fiber;
  boost::context::fiber scheduler;  // valid while the thread runs
  State state = State::kReady;
  int number = 0;  // index in the block
  Index3 index;
  uintptr_t stack_begin = 0;
  // The source location where it waits.
  const char* what = "";
  Site site;
  const void* in = nullptr;
  void* out = nullptr;
  bool begun = false;                // has called BeginKernel
  std::optional<Moment> wrote_host;  // the last time, in this block
  // cp.async
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
  ThreadProducts products;
};

struct Warp {
  uint32_t epoch = 0;
  int waiting = 0;
  int first = 0;  // lane of those that wait
};

// What a lane passes to a product.
struct ProductInput {
  float* d;
  const uint32_t* a;
  uint64_t columns;
  bool add;
};

// Four warps that multiply together.
struct WarpGroup {
  int waiting = 0;
  struct Reading {
    std::vector<int64_t> chunks;  // of 16 bytes
    int64_t group = 0;
    int threads = kGroupLanes;  // that have not waited for it
  };
  std::vector<Reading> readings;
};

bool SameName(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }
bool SameSite(const Site& a, const Site& b) { return a.line() == b.line() && SameName(a.file_name(), b.file_name()); }
std::string ToString(const Site& site) { return std::string(site.file_name()) + ":" + std::to_string(site.line()); }

class EmulatedMachine {
 public:
  bool Run(const char* kernel, const LaunchShape& shape, ThreadBody body, const void* context);

  Thread& thread() { return *running_; }
  bool is_checking() const { return running_ != nullptr && !combining_; }
  const LaunchShape& shape() const { return shape_; }
  Index3 block() const { return block_; }
  uint8_t* shared() { return shared_; }

  void Barrier(Site site);
  void Warp(const char* what, Site site, const void* in, void* out, Combine combine, bool orders);
  void Check(const void* address, int64_t bytes, Access access, bool whole_warp, const void* instruction = nullptr);
  void CheckRegisters(const void* address, int64_t bytes, bool write);
  void CopyAsync(void* to, const void* from, int bytes, int valid_bytes);
  void WaitCopies(size_t groups);
  void Product(const ProductKind& kind, Site site, float* d, const uint32_t* a, uint64_t columns, bool add);
  void WaitProducts(int groups);
  void StoreFlag(uint32_t* flag, uint32_t value);
  void LoadFromHost(const float* from, float* to);
  void FenceProxy() { ++proxy_fences_[static_cast<size_t>(running_->number)]; }
  uint32_t SharedAddress(const void* p);
  [[noreturn]] void Fail(const std::string& what);

  std::string finding;
  BankUse* bank_use = nullptr;

 private:
  void RunBlock();
  void Resume(Thread& thread);
  void Yield();
  bool RunReady();
  void Note(const Thread& thread, const std::string& what);
  void NoteDeadlock();
  std::optional<int64_t> SharedOffset(const void* address) const;
  void CheckShared(int64_t offset, int64_t bytes, Access access, bool whole_warp);
  Accessor AccessorOf(const Thread& thread, bool whole_warp) const;
  void Multiply(const ProductKind& kind, WarpGroup& group, Thread* lanes);

  const char* kernel_ = "";
  LaunchShape shape_;
  Index3 block_;
  ThreadBody body_ = nullptr;
  const void* context_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<struct Warp> warps_;
  std::vector<WarpGroup> warp_groups_;
  std::vector<uint32_t> proxy_fences_;  // of each thread
  Thread* running_ = nullptr;
  int live_ = 0;
  int at_barrier_ = 0;
  bool failed_ = false;
  bool combining_ = false;
  bool flagged_ = false;  // the block has stored a flag

  // Numbers of moments and blocks, which only grow.
  uint32_t now_ = 1;
  uint32_t block_epoch_ = 1;
  uint32_t block_begin_ = 1;
  uint32_t block_number_ = GlobalMemory::kHost;
  uint32_t first_block_ = 1;

  std::vector<boost::context::fiber>* abandoned_ = new std::vector<boost::context::fiber>;

  std::optional<BankLog> banks_;
  SharedShadow shadow_;
  std::unique_ptr<uint8_t[]> shared_memory_{new uint8_t[kMaxSharedBytes + 1024]};
  uint8_t* shared_ =
      reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(shared_memory_.get()) + 1023) / 1024 * 1024);
  boost::context::pooled_fixedsize_stack stacks_{kStackBytes};
};

// No kernel runs before main.
EmulatedMachine the_machine;

int64_t StaticSharedBytes() { return __stop_moestro_shared - __start_moestro_shared; }

bool EmulatedMachine::Run(const char* kernel, const LaunchShape& shape, ThreadBody body, const void* context) {
  MOE_CHECK(running_ == nullptr);
  const int64_t threads = int64_t{shape.block.x} * shape.block.y * shape.block.z;
  kernel_ = kernel;
  shape_ = shape;
  body_ = body;
  context_ = context;
  failed_ = false;
  first_block_ = block_number_ + 1;
  if (threads < 1 || threads > kMaxThreads || threads % kWarpLanes != 0) {
    finding = std::string(kernel) + ": a block of " + std::to_string(threads) + " threads, expected whole warps, " +
              "at most " + std::to_string(kMaxThreads);
    return false;
  }
  if (shape.shared_bytes + StaticSharedBytes() > kMaxSharedBytes) {
    finding = std::string(kernel) + ": too much shared memory: " + std::to_string(shape.shared_bytes) + " bytes";
    return false;
  }
  if (shape.grid.x < 1 || shape.grid.y < 1 || shape.grid.z < 1 || shape.grid.y > 65535 || shape.grid.z > 65535) {
    finding = std::string(kernel) + ": a grid that no GPU takes";
    return false;
  }
  for (unsigned z = 0; z < shape.grid.z && !failed_; ++z) {
    for (unsigned y = 0; y < shape.grid.y && !failed_; ++y) {
      for (unsigned x = 0; x < shape.grid.x && !failed_; ++x) {
        block_ = {x, y, z};
        RunBlock();
      }
    }
  }
  return !failed_;
}

void EmulatedMachine::RunBlock() {
  const int count = static_cast<int>(shape_.block.x * shape_.block.y * shape_.block.z);
  ++block_number_;
  block_begin_ = block_epoch_ = ++now_;
  // Unwritten memory is NaN, so that its use shows in results too.
  std::memset(shared_, 0xff, static_cast<size_t>(shape_.shared_bytes));
  if (StaticSharedBytes() > 0) std::memset(__start_moestro_shared, 0xff, static_cast<size_t>(StaticSharedBytes()));
  threads_ = std::vector<Thread>(static_cast<size_t>(count));
  warps_.assign(static_cast<size_t>(count / kWarpLanes), {.epoch = block_epoch_});
  warp_groups_.assign(static_cast<size_t>(count / kGroupLanes), {});
  proxy_fences_.assign(static_cast<size_t>(count), 0);
  if (bank_use != nullptr) banks_.emplace(count / kWarpLanes);
  live_ = count;
  at_barrier_ = 0;
  flagged_ = false;
  for (int i = 0; i < count; ++i) {
    Thread& t = threads_[static_cast<size_t>(i)];
    const auto n = static_cast<unsigned>(i);
    t.number = i;
    t.index = {n % shape_.block.x, n / shape_.block.x % shape_.block.y, n / shape_.block.x / shape_.block.y};
    t.fiber = boost::context::fiber(std::allocator_arg, stacks_, [this, &t](boost::context::fiber&& scheduler) {
      t.scheduler = std::move(scheduler);
      t.stack_begin = reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) + 512 - kStackBytes;
      SetStack(t.stack_begin);
      body_(context_);
      if (!t.begun) Note(t, "ends without BeginKernel");
      t.state = State::kDone;
      --live_;
      return std::move(t.scheduler);
    });
  }
  while (!failed_ && live_ > 0) {
    if (RunReady()) continue;
    NoteDeadlock();
  }
  for (Thread& t : threads_) {
    t.groups.push_back(std::move(t.open));
    for (const auto& group : t.groups) {
      for (const Copy& copy : group) {
        const int64_t offset = *SharedOffset(copy.to);
        shadow_.SetInFlight(offset, offset + copy.size, false);
      }
    }
  }
  for (const WarpGroup& group : warp_groups_) {
    for (const WarpGroup::Reading& reading : group.readings) {
      for (const int64_t at : reading.chunks) shadow_.AddProducts(at, at + 16, -1);
    }
  }
  // Waiting threads cannot be unwound: the compiler assumes that the hooks never throw. Their stacks are leaked.
  for (Thread& t : threads_) {
    if (t.fiber) abandoned_->push_back(std::move(t.fiber));
  }
  threads_.clear();
}

// Runs warp by warp, each until all its threads wait for others. False if no thread could run.
bool EmulatedMachine::RunReady() {
  bool ran = false;
  for (size_t warp = 0; warp < warps_.size(); ++warp) {
    for (bool again = true; again;) {
      again = false;
      for (int lane = 0; lane < kWarpLanes; ++lane) {
        Thread& t = threads_[warp * kWarpLanes + static_cast<size_t>(lane)];
        if (t.state != State::kReady) continue;
        Resume(t);
        if (failed_) return true;
        ran = again = true;
      }
    }
  }
  return ran;
}

void EmulatedMachine::Resume(Thread& thread) {
  running_ = &thread;
  SetStack(thread.stack_begin);
  thread.fiber = std::move(thread.fiber).resume();
  SetStack(0);
  running_ = nullptr;
}

void EmulatedMachine::Yield() {
  Thread& self = *running_;
  self.scheduler = std::move(self.scheduler).resume();
}

void EmulatedMachine::Note(const Thread& t, const std::string& what) {
  failed_ = true;
  char where[160];
  std::snprintf(where, sizeof where, ": block (%u, %u, %u) thread (%u, %u, %u): ", block_.x, block_.y, block_.z,
                t.index.x, t.index.y, t.index.z);
  finding = kernel_ + std::string(where) + what;
}

void EmulatedMachine::Fail(const std::string& what) {
  Note(*running_, what);
  Yield();  // never returns
  std::abort();
}

void EmulatedMachine::NoteDeadlock() {
  const Thread* waiting = nullptr;
  for (const Thread& t : threads_) {
    if (t.state == State::kDone) continue;
    if (waiting == nullptr) waiting = &t;
    if (t.state == State::kAtWarpOperation) waiting = &t;  // the rarer and more informative one
  }
  for (const Thread& t : threads_) {
    if (t.state == waiting->state && t.state != State::kDone) continue;
    Note(*waiting, "deadlock: waits at " + std::string(waiting->what) + ", " + ToString(waiting->site) +
                       ", for thread " + std::to_string(t.number) +
                       (t.state == State::kDone ? ", which has returned"
                                                : ", which waits at " + std::string(t.what) + ", " + ToString(t.site)));
    return;
  }
  Note(*waiting, "deadlock at " + std::string(waiting->what) + ", " + ToString(waiting->site));
}

void EmulatedMachine::Barrier(Site site) {
  Thread& self = *running_;
  self.what = "__syncthreads";
  self.site = site;
  for (const Thread& t : threads_) {
    if (t.state == State::kAtBarrier && !SameSite(t.site, site)) {
      Fail("waits at __syncthreads, " + ToString(site) + ", but thread " + std::to_string(t.number) + " at that of " +
           ToString(t.site));
    }
    if (t.state == State::kAtBarrier) break;  // all waiting threads are at the same place
  }
  self.state = State::kAtBarrier;
  if (++at_barrier_ < static_cast<int>(threads_.size())) return Yield();
  at_barrier_ = 0;
  block_epoch_ = ++now_;
  for (size_t i = 0; i < warps_.size(); ++i) {
    warps_[i].epoch = block_epoch_;
    if (bank_use != nullptr) banks_->Flush(static_cast<int>(i), *bank_use);
  }
  for (Thread& t : threads_) t.state = State::kReady;
}

void EmulatedMachine::Warp(const char* what, Site site, const void* in, void* out, Combine combine, bool orders) {
  Thread& self = *running_;
  const size_t number = static_cast<size_t>(self.number / kWarpLanes);
  struct Warp& warp = warps_[number];
  Thread* lanes = &threads_[number * kWarpLanes];
  self.what = what;
  self.site = site;
  self.in = in;
  self.out = out;
  if (warp.waiting == 0) warp.first = self.number % kWarpLanes;
  const Thread& first = lanes[warp.first];
  if (!SameName(first.what, what) || !SameSite(first.site, site)) {
    Fail("is at " + std::string(what) + ", " + ToString(site) + ", but thread " + std::to_string(first.number) +
         " of the same warp at " + first.what + ", " + ToString(first.site));
  }
  self.state = State::kAtWarpOperation;
  if (++warp.waiting < kWarpLanes) return Yield();
  warp.waiting = 0;
  const void* ins[kWarpLanes];
  void* outs[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    ins[i] = lanes[i].in;
    outs[i] = lanes[i].out;
    lanes[i].state = State::kReady;
  }
  if (orders) warp.epoch = ++now_;
  if (bank_use != nullptr) banks_->Flush(static_cast<int>(number), *bank_use);
  combining_ = true;  // reads other threads' stacks, which kernels must not do
  if (combine != nullptr) combine(ins, outs);
  combining_ = false;
}

// Shared memory in one address range: dynamic first, then static.
std::optional<int64_t> EmulatedMachine::SharedOffset(const void* address) const {
  const auto* p = static_cast<const uint8_t*>(address);
  if (p >= shared_ && p < shared_ + kMaxSharedBytes) return p - shared_;
  if (p >= __start_moestro_shared && p < __stop_moestro_shared)
    return shape_.shared_bytes + (p - __start_moestro_shared);
  return std::nullopt;
}

Accessor EmulatedMachine::AccessorOf(const Thread& thread, bool whole_warp) const {
  return {thread.number,
          {block_epoch_, warps_[static_cast<size_t>(thread.number / kWarpLanes)].epoch},
          whole_warp,
          proxy_fences_[static_cast<size_t>(thread.number)]};
}

void EmulatedMachine::CheckShared(int64_t offset, int64_t bytes, Access access, bool whole_warp) {
  if (offset + bytes > shape_.shared_bytes + StaticSharedBytes()) {
    Fail("access of " + std::to_string(bytes) + " bytes at " + std::to_string(offset) +
         " of shared memory, of which the block has " + std::to_string(shape_.shared_bytes));
  }
  const std::string wrong =
      shadow_.Check(offset, offset + bytes, access, AccessorOf(*running_, whole_warp), block_begin_);
  if (!wrong.empty()) Fail(wrong);
}

void EmulatedMachine::Check(const void* address, int64_t bytes, Access access, bool whole_warp,
                            const void* instruction) {
  const auto p = reinterpret_cast<uintptr_t>(address);
  if (const std::optional<int64_t> offset = SharedOffset(address)) {
    CheckShared(*offset, bytes, access, whole_warp);
    if (bank_use != nullptr && instruction != nullptr) banks_->Note(running_->number, instruction, *offset, bytes);
    return;
  }
  // Constants of the program.
  if (access == Access::kRead && p >= reinterpret_cast<uintptr_t>(__executable_start) &&
      p + static_cast<uint64_t>(bytes) <= reinterpret_cast<uintptr_t>(__data_start)) {
    return;
  }
  if (!running_->begun) Fail("access to memory before BeginKernel");
  const std::string wrong = GlobalMemory::Get().Check(address, bytes, access, block_number_, first_block_);
  if (!wrong.empty()) Fail(wrong);
  if (access != Access::kWrite && GlobalMemory::Get().DidChange())
    Fail("an ordinary load of memory that the host writes");
  if (access == Access::kRead || !GlobalMemory::Get().WasHost()) return;
  if (flagged_) Fail("write to host memory behind the block's flag");
  running_->wrote_host = AccessorOf(*running_, whole_warp).when;
}

void EmulatedMachine::StoreFlag(uint32_t* flag, uint32_t value) {
  if (!running_->begun) Fail("access to memory before BeginKernel");
  const std::string wrong = GlobalMemory::Get().Check(flag, sizeof *flag, Access::kWrite, block_number_, first_block_);
  if (!wrong.empty()) Fail(wrong);
  if (!GlobalMemory::Get().WasHost()) Fail("a flag that is not in host memory");
  const Accessor self = AccessorOf(*running_, false);
  for (const Thread& other : threads_) {
    if (other.wrote_host && other.number != self.thread &&
        SharedShadow::Unordered(other.number, *other.wrote_host, self)) {
      Fail("a flag is stored, and thread " + std::to_string(other.number) +
           " has written to host memory: no barrier lies between");
    }
  }
  flagged_ = true;
  std::atomic_ref(*flag).store(value, std::memory_order_release);
}

void EmulatedMachine::LoadFromHost(const float* from, float* to) {
  constexpr int64_t kBytes = 16;
  if (!running_->begun) Fail("access to memory before BeginKernel");
  const std::string wrong = GlobalMemory::Get().Check(from, kBytes, Access::kRead, block_number_, first_block_);
  if (!wrong.empty()) Fail(wrong);
  std::memcpy(to, from, kBytes);
}

void EmulatedMachine::CheckRegisters(const void* address, int64_t bytes, bool write) {
  if (!running_->products.active()) return;
  const std::string wrong = running_->products.Access(address, bytes, write);
  if (!wrong.empty()) Fail(wrong);
}

void EmulatedMachine::CopyAsync(void* to, const void* from, int bytes, int valid_bytes) {
  const std::optional<int64_t> offset = SharedOffset(to);
  if (!offset) Fail("cp.async to an address that is not shared memory");
  CheckShared(*offset, bytes, Access::kWrite, false);
  Copy copy{.to = static_cast<uint8_t*>(to), .size = bytes};
  if (valid_bytes > 0) {
    Check(from, valid_bytes, Access::kRead, false);
    std::memcpy(copy.bytes, from, static_cast<size_t>(valid_bytes));
  }
  shadow_.SetInFlight(*offset, *offset + bytes, true);
  running_->open.push_back(copy);
}

void EmulatedMachine::WaitCopies(size_t groups) {
  auto& pending = running_->groups;
  while (pending.size() > groups) {
    for (const Copy& copy : pending.front()) {
      const int64_t offset = *SharedOffset(copy.to);
      shadow_.SetInFlight(offset, offset + copy.size, false);
      CheckShared(offset, copy.size, Access::kWrite, false);
      std::memcpy(copy.to, copy.bytes, static_cast<size_t>(copy.size));
    }
    pending.erase(pending.begin());
  }
}

uint32_t EmulatedMachine::SharedAddress(const void* p) {
  const std::optional<int64_t> offset = SharedOffset(p);
  if (!offset) Fail("the shared address of something else");
  return static_cast<uint32_t>(*offset);
}

void EmulatedMachine::Product(const ProductKind& kind, Site site, float* d, const uint32_t* a, uint64_t columns,
                              bool add) {
  Thread& self = *running_;
  const size_t number = static_cast<size_t>(self.number / kGroupLanes);
  if (number >= warp_groups_.size()) Fail(std::string(kind.what) + " of fewer than 4 warps");
  Thread* const lanes = &threads_[number * kGroupLanes];
  const std::string wrong = self.products.Begin(d, kind.columns / 2, a);
  if (!wrong.empty()) Fail(wrong);
  const ProductInput in{d, a, columns, add};
  self.what = kind.what;
  self.site = site;
  self.in = &in;
  for (int i = 0; i < kGroupLanes; ++i) {
    if (lanes[i].state != State::kAtProduct) continue;
    const auto& other = *static_cast<const ProductInput*>(lanes[i].in);
    if (!SameSite(lanes[i].site, site) || other.columns != columns || other.add != add) {
      Fail("is at " + std::string(kind.what) + ", " + ToString(site) + ", but thread " +
           std::to_string(lanes[i].number) + " of the same four warps at another, " + ToString(lanes[i].site));
    }
    break;
  }
  self.state = State::kAtProduct;
  WarpGroup& group = warp_groups_[number];
  if (++group.waiting < kGroupLanes) return Yield();
  group.waiting = 0;
  for (int i = 0; i < kGroupLanes; ++i) lanes[i].state = State::kReady;
  Multiply(kind, group, lanes);
}

// With g = lane / 4 and t = lane % 4, a lane of warp w has
//   A: register r: row 16 w + g + 8 (r % 2), columns depth / 2 * (r / 2) + t * (32 / bits) and those after it
//   D: number i: row 16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2 t + i % 2
void EmulatedMachine::Multiply(const ProductKind& kind, WarpGroup& group, Thread* lanes) {
  constexpr int kRows = 64, kDepthBits = 32 * 8;
  const int depth = kDepthBits / kind.bits, per_register = 32 / kind.bits;
  const auto input = [&](int lane) { return static_cast<const ProductInput*>(lanes[lane].in); };
  const ColumnsDescriptor descriptor(input(0)->columns);
  if (const std::string fault = descriptor.Fault(kind.transposed); !fault.empty()) {
    Fail(std::string(kind.what) + ": " + fault);
  }
  WarpGroup::Reading reading{{}, lanes[0].products.commits(), kGroupLanes};
  std::vector<double> b(static_cast<size_t>(kind.columns * depth));    // [columns, depth]
  std::vector<bool> is_zero(static_cast<size_t>(kind.columns), true);  // columns, of which many are
  // Lines of memory: columns of B, or its rows.
  const int lines = kind.transposed ? depth : kind.columns, per_chunk = 16 * 8 / kind.bits;
  const int chunks = (kind.transposed ? kind.columns : depth) / per_chunk;
  for (int line = 0; line < lines; ++line) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int64_t at = kind.transposed ? descriptor.TransposedAddress(line, chunk) : descriptor.Address(line, chunk);
      if (at + 16 > shape_.shared_bytes) Fail(std::string(kind.what) + " beyond the block's shared memory");
      const std::string wrong =
          shadow_.CheckProduct(at, at + 16, AccessorOf(*running_, true), block_begin_, proxy_fences_);
      if (!wrong.empty()) Fail(wrong);
      shadow_.AddProducts(at, at + 16, 1);
      reading.chunks.push_back(at);
      for (int i = 0; i < per_chunk; ++i) {
        uint32_t bits = 0;
        std::memcpy(&bits, shared_ + at + i * kind.bits / 8, static_cast<size_t>(kind.bits / 8));
        const double value = kind.value(bits);
        const int other = chunk * per_chunk + i;
        const int column = kind.transposed ? other : line, k = kind.transposed ? line : other;
        b[static_cast<size_t>(column * depth + k)] = value;
        if (value != 0) is_zero[static_cast<size_t>(column)] = false;
      }
    }
  }
  group.readings.push_back(std::move(reading));
  std::vector<double> a(static_cast<size_t>(kRows * depth));
  bool is_finite = true;
  for (int lane = 0; lane < kGroupLanes; ++lane) {
    const int g = lane % kWarpLanes / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      const int row = lane / kWarpLanes * 16 + g + 8 * (r % 2);
      for (int i = 0; i < per_register; ++i) {
        const int column = depth / 2 * (r / 2) + t * per_register + i;
        const double value = kind.value(input(lane)->a[r] >> (kind.bits * i) & ((1u << kind.bits) - 1));
        a[static_cast<size_t>(row * depth + column)] = value;
        is_finite = is_finite && std::isfinite(value);
      }
    }
  }
  for (int lane = 0; lane < kGroupLanes; ++lane) {
    std::vector<float>& values = lanes[lane].products.Values(input(lane)->d);
    for (int i = 0; i < kind.columns / 2; ++i) {
      const int row = lane / kWarpLanes * 16 + lane % kWarpLanes / 4 + 8 * (i / 2 % 2);
      const int column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
      double sum = input(lane)->add ? double{values[static_cast<size_t>(i)]} : 0.0;
      for (int k = 0; k < depth && !(is_zero[static_cast<size_t>(column)] && is_finite); ++k) {
        sum += a[static_cast<size_t>(row * depth + k)] * b[static_cast<size_t>(column * depth + k)];
      }
      values[static_cast<size_t>(i)] = kind.round(sum);
    }
  }
}

void EmulatedMachine::WaitProducts(int groups) {
  const size_t number = static_cast<size_t>(running_->number / kGroupLanes);
  if (number >= warp_groups_.size()) return;
  const auto [first, end] = running_->products.Wait(groups);
  for (WarpGroup::Reading& reading : warp_groups_[number].readings) {
    if (reading.group < first || reading.group >= end || --reading.threads > 0) continue;
    for (const int64_t at : reading.chunks) shadow_.AddProducts(at, at + 16, -1);
  }
  std::erase_if(warp_groups_[number].readings, [](const auto& reading) { return reading.threads == 0; });
}

}  // namespace

std::recursive_mutex& Turn() {
  static std::recursive_mutex mutex;
  return mutex;
}

bool RunGrid(const char* kernel, const LaunchShape& shape, ThreadBody thread, const void* context) {
  std::lock_guard turn(Turn());
  last_shapes[kernel] = shape;
  runs_kernels = true;
  const bool ok = the_machine.Run(kernel, shape, thread, context);
  runs_kernels = false;
  watches_registers.store(false, std::memory_order_relaxed);
  return ok;
}
LaunchShape LastShape(const std::string& kernel) {
  std::lock_guard turn(Turn());
  const auto found = last_shapes.find(kernel);
  return found == last_shapes.end() ? LaunchShape{.grid = {0, 0, 0}, .block = {0, 0, 0}} : found->second;
}
void CountBankConflicts(BankUse* use) { the_machine.bank_use = use; }
std::string Finding() {
  std::lock_guard turn(Turn());
  return the_machine.finding;
}
std::string TakeFinding() {
  std::lock_guard turn(Turn());
  return std::exchange(the_machine.finding, {});
}

Index3 ThreadIndex() { return the_machine.thread().index; }
Index3 BlockIndex() { return the_machine.block(); }
Extent3 BlockExtent() { return the_machine.shape().block; }
Extent3 GridExtent() { return the_machine.shape().grid; }
int Lane() { return the_machine.thread().number % kWarpLanes; }
uint8_t* DynamicShared() { return the_machine.shared(); }

void SyncBlock(Site site) { the_machine.Barrier(site); }
void WarpOperation(const char* what, Site site, const void* in, void* out, Combine combine) {
  the_machine.Warp(what, site, in, out, combine, /*orders=*/false);
}
void SyncWarp(Site site) { the_machine.Warp("__syncwarp", site, nullptr, nullptr, nullptr, /*orders=*/true); }

void CheckAccess(const void* address, int64_t bytes, Access access, bool whole_warp, const void* instruction) {
  if (runs_kernels && the_machine.is_checking()) the_machine.Check(address, bytes, access, whole_warp, instruction);
}
void CheckRegisters(const void* address, int64_t bytes, bool write) {
  if (runs_kernels && the_machine.is_checking()) the_machine.CheckRegisters(address, bytes, write);
}
void CheckAlignment(const char* what, const void* address, int64_t alignment) {
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uint64_t>(alignment) == 0) return;
  the_machine.Fail(std::string(what) + ": the address is not a multiple of " + std::to_string(alignment));
}

void CopyAsync(void* shared, const void* global, int bytes, int valid_bytes) {
  CheckAlignment("cp.async", shared, bytes);
  if (valid_bytes < 0 || valid_bytes > bytes) {
    the_machine.Fail("cp.async of " + std::to_string(valid_bytes) + " bytes of " + std::to_string(bytes));
  }
  if (valid_bytes > 0) CheckAlignment("cp.async", global, bytes);
  the_machine.CopyAsync(shared, global, bytes, valid_bytes);
}
void CommitCopies() {
  Thread& t = the_machine.thread();
  t.groups.push_back(std::exchange(t.open, {}));
}
void Product(const ProductKind& kind, Site site, float* d, const uint32_t* a, uint64_t columns, bool add) {
  the_machine.Product(kind, site, d, a, columns, add);
}
void FenceProducts() {
  watches_registers.store(true, std::memory_order_relaxed);
  the_machine.thread().products.Fence();
}
void CommitProducts() { the_machine.thread().products.Commit(); }
void WaitProducts(int groups) { the_machine.WaitProducts(groups); }
void FenceProxy() { the_machine.FenceProxy(); }
void BeginKernel() { the_machine.thread().begun = true; }
void Prefetch(const void* address) {
  if (!GlobalMemory::Get().Has(address)) the_machine.Fail("prefetch outside of device memory");
}
void StoreFlag(uint32_t* flag, uint32_t value) {
  CheckAlignment("a flag", flag, sizeof *flag);
  the_machine.StoreFlag(flag, value);
}
void LoadFromHost(const float* from, float* to) {
  CheckAlignment("a load from the host", from, 16);
  the_machine.LoadFromHost(from, to);
}
uint32_t SharedAddress(const void* shared) { return the_machine.SharedAddress(shared); }
void WaitCopies(int groups) { the_machine.WaitCopies(static_cast<size_t>(groups)); }
void Fail(const std::string& what) { the_machine.Fail(what); }

}  // namespace moestro::emulation
