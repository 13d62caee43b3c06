#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/background_throttle.h"
#include "base/error.h"

namespace chorus {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256(BackgroundThrottle* throttle) : state_(std::make_unique<State>()), throttle_(throttle) {
  if (state_->context == nullptr || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) {
    fail(ErrorCode::kInternal, "SHA-256 is not available");
  }
}
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  inPieces(std::ssize(bytes), 1, throttle_, [&](int64_t begin, int64_t count) {
    EVP_DigestUpdate(state_->context, bytes.data() + begin, static_cast<size_t>(count));
  });
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context, digest, &size);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

}  // namespace chorus
