// SHA-256, used to identify data by content.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace chorus {

class BackgroundThrottle;

class Sha256 {
 public:
  // throttle: is charged for the hashed bytes; may be null.
  explicit Sha256(BackgroundThrottle* throttle = nullptr);
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  // The digest as 64 lower-case hexadecimal digits. The object must not be used afterwards.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
  BackgroundThrottle* throttle_;
};

}  // namespace chorus
