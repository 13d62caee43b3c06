#include "server/page/page.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "server/page/embedded_files.h"

namespace chorus::server {
namespace {

struct Page {
  std::string html;
  std::string policy;
  std::string tag;
};

// The form of a content security policy's source for an inline element with this text.
std::string hashSource(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int bytes = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &bytes, EVP_sha256(), nullptr);
  std::array<unsigned char, 2 * EVP_MAX_MD_SIZE> encoded;
  const int length = EVP_EncodeBlock(encoded.data(), digest.data(), static_cast<int>(bytes));
  return fmt::format("'sha256-{}'",
                     std::string_view(reinterpret_cast<const char*>(encoded.data()), static_cast<size_t>(length)));
}

// Puts the text into the first pair of these tags.
void fill(std::string& html, std::string_view tags, std::string_view text) {
  const size_t at = html.find(tags);
  html.insert(at + tags.find('>') + 1, text);
}

Page makePage() {
  Page page{.html = kPageHtml, .policy = {}, .tag = {}};
  fill(page.html, "<style></style>", kPageStyle);
  fill(page.html, "<script></script>", kPageScript);
  page.policy = fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'",
      hashSource(kPageScript), hashSource(kPageStyle));
  Sha256 hash;
  hash.update(page.html);
  page.tag = fmt::format("\"{}\"", hash.hex().substr(0, 32));
  return page;
}

}  // namespace

HttpResponse pageResponse() {
  static const Page page = makePage();
  return {.content_type = "text/html; charset=utf-8",
          .body = page.html,
          .headers = {{"content-security-policy", page.policy},
                      {"etag", page.tag},
                      {"cache-control", "no-cache"},
                      {"x-content-type-options", "nosniff"},
                      {"referrer-policy", "no-referrer"}}};
}

}  // namespace chorus::server
