#include "server/openai/service_info.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "server/openai/embedded_files.h"
#include "server/openai/request_json.h"
#include "server/work/charged_body.h"

namespace chorus::server {
namespace {

// Returns the SHA-1 of the text as 40 lower-case hexadecimal digits.
std::string sha1(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha1(), nullptr) != 1) {
    fail(ErrorCode::kInternal, "SHA-1 is not available");
  }
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

const OrderedJson& licenseJson() {
  static const OrderedJson json = [] {
    const std::string_view text = kLicense;  // ASCII, so bytes are characters
    return OrderedJson{{"name", "LICENSE"},
                       {"path", "LICENSE"},
                       {"sha", sha1(text)},
                       {"size", text.size()},
                       {"url", "https://www.apache.org/licenses/LICENSE-2.0"},
                       {"type", "file"},
                       {"content", text}};
  }();
  return json;
}

}  // namespace

HttpResponse describeVersion() { return {.body = toText(OrderedJson{{"release", CHORUS_VERSION}, {"api", "1.0.0"}})}; }

HttpResponse describePlainVersion() { return {.body = toText(OrderedJson{{"version", CHORUS_VERSION}})}; }

HttpResponse describeLicense() { return {.body = toText(licenseJson())}; }

HttpResponse describeMetadata(const ModelView& models, const std::shared_ptr<Client>& client) {
  const auto served = models.list();
  const auto model = [&](size_t i) { return toText(OrderedJson{{"shortName", served[i]->name}, {"modelUrl", ""}}); };
  ChargedBody body(client);
  body.add(fmt::format(R"({{"version":{},"assetInfo":[],"licenseInfo":{},"modelInfo":)", toText(CHORUS_VERSION),
                       toText(licenseJson())));
  body.addArray(served.size(), model);
  body.add(R"(,"repository_override":"","selectedModelProfileId":""})");
  return body.response();
}

HttpResponse describeManifest(const ModelView& models, const std::shared_ptr<Client>& client) {
  ChargedBody body(client);
  const auto add = [&](const std::string& part) {
    const std::string quoted = toText(part);
    body.add(std::string_view(quoted).substr(1, quoted.size() - 2));
  };
  body.add(R"({"manifest_file":")");
  // A JSON string is a YAML string too, so names need no other quoting.
  add(fmt::format("release: {}\nmodels:\n", toText(CHORUS_VERSION)));
  for (const auto& model : models.list()) {
    add(fmt::format("  - name: {}\n    fingerprint: {}\n", toText(model->name), toText(model->fingerprint)));
  }
  body.add(R"(","repository_override":""})");
  return body.response();
}

}  // namespace chorus::server
