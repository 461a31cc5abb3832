#include "common/text/grammar/string_formats.h"

#include "common/text/concat.h"

namespace moestro::text::grammar {
namespace {

// RFC 3339, without leap seconds, and with the 29th of February in leap years only.
constexpr std::string_view kDate =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|"
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
// ISO 8601, with whole numbers.
constexpr std::string_view kDuration =
    "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)"
    "(?:T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))?|"
    "T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))";
constexpr std::string_view kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
constexpr std::string_view kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
constexpr std::string_view kUuid = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
constexpr std::string_view kGroup = "[0-9a-fA-F]{1,4}";

std::string Ipv4() { return Concat(kByte, "(?:\\.", kByte, "){3}"); }

// RFC 4291: eight groups, or fewer with "::" in place of one or more. Of those that end as IPv4 does, what maps it.
std::string Ipv6() {
  const std::string before = Concat("(?:", kGroup, ":)"), after = Concat("(?::", kGroup, ")");
  std::string pattern = Concat("(?:", before, "{7}(?:", kGroup, "|:)|:(?:", after, "{1,7}|:)|::[fF]{4}:", Ipv4());
  for (int groups = 1; groups <= 6; ++groups) {
    pattern += Concat("|", before, "{", groups, "}(?:", after, "{1,", 7 - groups, "}|:)");
  }
  return pattern + ")";
}

}  // namespace

std::string FormatPattern(std::string_view format) {
  if (format == "date") return std::string(kDate);
  if (format == "time") return std::string(kTime);
  if (format == "date-time") return Concat(kDate, "T", kTime);
  if (format == "duration") return std::string(kDuration);
  if (format == "uuid") return std::string(kUuid);
  // Three labels of at most 63 characters are below the limit of 253.
  if (format == "hostname") return Concat(kLabel, "(?:\\.", kLabel, "){0,2}");
  if (format == "email") {
    return Concat("[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,15}){0,2}@", kLabel, "(?:\\.", kLabel, "){0,2}");
  }
  if (format == "ipv4") return Ipv4();
  if (format == "ipv6") return Ipv6();
  return "";
}

}  // namespace moestro::text::grammar
