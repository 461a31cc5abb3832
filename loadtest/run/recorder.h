// Turns events into records, and counts them for the progress line. Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "loadtest/client/transport.h"
#include "loadtest/records/record.h"

namespace moestro::loadtest {

struct Counts {
  int64_t begun = 0;
  int64_t completed = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t tokens = 0;
  int64_t in_flight() const { return begun - completed - cancelled - failed; }
};

class Recorder {
 public:
  // Returns the id of the request in events. Times are seconds since the run began.
  int64_t Begin(const Request& request, double scheduled, double now);
  // `event.at`: seconds since the run began. Returns the request's record.
  const Record& Apply(const TransportEvent& event);
  void MarkCancelled(int64_t id, double now);

  const Counts& counts() const { return counts_; }
  const std::vector<Record>& records() const { return records_; }  // by id
  std::vector<Record> TakeRecords() { return std::move(records_); }

 private:
  std::vector<Record> records_;
  Counts counts_;
};

}  // namespace moestro::loadtest
