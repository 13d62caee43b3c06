// Maps the texts of cache_salt to the engine's salt ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace chorus::server {

// The id is 64 bits of the SHA-256 of the salt and a random key of this process. A client that looks for a text with
// the id of another salt, or for two texts with the same id, needs about 2^64 / (number of salts) requests.
class CacheSalts {
 public:
  CacheSalts();
  uint64_t idOf(std::string_view salt) const;

 private:
  std::string key_;
};

}  // namespace chorus::server
