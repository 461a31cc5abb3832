// Reads the metadata of one architecture: a list of reads followed by one check. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/checkpoint/gguf/gguf_metadata.h"

namespace moestro::checkpoint {

// The shortest decimal that means this float, as a double: 1e-6 for what a writer of floats made of 1e-6.
double Decimal(float value);
// Ten times that decimal.
double TenTimesDecimal(float value);

// Keys are named without the architecture, which precedes them in the file: "block_count". After an error, every read
// still returns a value within its bounds; the first error is kept.
class GgufFields {
 public:
  // `metadata` and `status` must outlive this.
  GgufFields(const GgufMetadata& metadata, std::string architecture, absl::Status* status)
      : metadata_(metadata), architecture_(std::move(architecture)), status_(status) {}

  bool Has(absl::string_view key) const { return metadata_.Has(Key(key)); }

  // A key may have one value for all layers or one for each: then they must be alike.
  int64_t Int(absl::string_view key, int64_t least, int64_t most);
  int64_t IntOr(absl::string_view key, int64_t fallback, int64_t least, int64_t most) {
    return Has(key) ? Int(key, least, most) : fallback;
  }
  // Finite. Floats are taken by the decimal that they were written as.
  double Number(absl::string_view key);
  double NumberOr(absl::string_view key, double fallback) { return Has(key) ? Number(key) : fallback; }
  float FloatOr(absl::string_view key, float fallback);
  bool FlagOr(absl::string_view key, bool fallback);
  std::string TextOr(absl::string_view key, const std::string& fallback);

  void Wrong(absl::string_view key, absl::string_view why) { Record(metadata_.Wrong(Key(key), why)); }
  void NotSupported(absl::string_view key, absl::string_view why) { Record(metadata_.NotSupported(Key(key), why)); }
  void Record(const absl::Status& error) { status_->Update(error); }

  bool ok() const { return status_->ok(); }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::string& architecture() const { return architecture_; }

 private:
  std::string Key(absl::string_view key) const { return absl::StrCat(architecture_, ".", key); }

  const GgufMetadata& metadata_;
  const std::string architecture_;
  absl::Status* status_;
};

}  // namespace moestro::checkpoint
