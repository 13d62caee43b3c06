// API keys and what each may do.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/access/limit_settings.h"
#include "server/http/http.h"

namespace chorus::server {

// Immutable. A key without a list of adapters may use all of them.
struct KeyRights {
  std::string name;    // of the key, for logs and for fair shares; never the key itself
  bool admin = false;  // may use the routes that load and remove adapters
  bool base = true;    // may use the base model
  bool all_adapters = true;
  std::vector<std::string> adapters;  // if not all: names, in which '*' stands for any characters
  LimitSettings limits = {};          // on what requests with this key use together
  int32_t weight = 1;                 // of its share with --fairness weighted

  bool mayUseAdapter(std::string_view adapter) const;
};

// Immutable and thread-safe. Keys are kept as SHA-256 digests.
class ApiKeys {
 public:
  // Parses the text of --api_keys_file, which is YAML or JSON:
  //   keys:
  //     - name: legal
  //       key: sk-...          # or key_sha256: 64 hexadecimal digits
  //       adapters: [contracts, "court-*"]
  //       base: false
  //       admin: false
  //       limits: {requests_per_minute: 60, tokens_per_minute: 100000, concurrent_requests: 4}   # each 0: none
  //       weight: 3            # 1 to 1000, by default 1: see KeyRights::weight
  //   adapters:                # optional: limits on what all keys use together of each of these adapters, and weights
  //     - {name: "court-*", limits: {concurrent_requests: 8}, weight: 2}
  // Only `keys`, with a name and one form of the key for each, is required. Throws Error that names source and entry:
  // kCorrupt for malformed text, kInvalidArgument for unknown or wrong fields, short keys, names or keys that are there
  // twice, and for a file without keys.
  static ApiKeys parse(std::string_view text, std::string_view source);
  // One key with all rights (--api_key). Throws Error(kInvalidArgument) if it is too short.
  static ApiKeys single(std::string_view key);
  static constexpr size_t kMinKeyBytes = 8;

  // The rights of the key that the request presents, in `authorization: Bearer KEY` or `x-api-key: KEY`. Throws
  // ApiError (401) without a known key.
  std::shared_ptr<const KeyRights> authenticate(const HttpRequest& request) const;
  size_t size() const { return keys_.size(); }
  // The limits of the entry with the adapter's name, else of the first one whose pattern fits; none without an entry.
  LimitSettings limitsOfAdapter(const std::string& adapter) const { return settingsOf(adapter).limits; }
  bool limitAdapters() const { return limits_adapters_; }
  // The weight in the same entry; 1 without one.
  int32_t weightOfAdapter(const std::string& adapter) const { return settingsOf(adapter).weight; }

 private:
  struct AdapterSettings {
    LimitSettings limits;
    int32_t weight = 1;
  };
  void readAdapters(const Json& list, std::string_view source);
  AdapterSettings settingsOf(const std::string& adapter) const;

  // By the key's SHA-256 in lower-case hexadecimal digits.
  std::unordered_map<std::string, std::shared_ptr<const KeyRights>> keys_;
  std::unordered_map<std::string, AdapterSettings> adapters_by_name_;
  std::vector<std::pair<std::string, AdapterSettings>> adapters_by_pattern_;
  bool limits_adapters_ = false;
};

}  // namespace chorus::server
