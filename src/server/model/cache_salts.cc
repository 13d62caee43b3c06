#include "server/model/cache_salts.h"

#include <fmt/format.h>

#include <charconv>
#include <random>

#include "base/sha256.h"

namespace chorus::server {

CacheSalts::CacheSalts() {
  std::random_device random;
  for (int i = 0; i < 8; ++i) key_ += fmt::format("{:08x}", static_cast<uint32_t>(random()));
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
