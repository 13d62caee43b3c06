#include "server/model/cache_salts.h"

#include <fmt/format.h>

#include <charconv>

#include "base/random_bits.h"
#include "base/sha256.h"

namespace chorus::server {

CacheSalts::CacheSalts() {
  for (int i = 0; i < 4; ++i) key_ += fmt::format("{:016x}", randomBits());
}

uint64_t CacheSalts::idOf(std::string_view salt) const {
  Sha256 hash;
  hash.update(key_);
  hash.update(salt);
  const std::string digits = hash.hex();
  uint64_t id = 0;
  std::from_chars(digits.data(), digits.data() + 16, id, 16);
  return id;
}

}  // namespace chorus::server
