// What the texts of cache_salt stand for in the engine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace chorus::server {

// Salts are told apart by 64 bits of SHA-256 with a key that is drawn at random for every process: nobody can find two
// texts that stand for one salt, or one that stands for another's, but by asking 2^64 times over the number of salts.
class CacheSalts {
 public:
  CacheSalts();
  uint64_t idOf(std::string_view salt) const;

 private:
  std::string key_;
};

}  // namespace chorus::server
