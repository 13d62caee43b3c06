#include "server/openai/service_info.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "server/openai/embedded_files.h"
#include "server/openai/request_json.h"

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

HttpResponse describeLicense() { return {.body = toText(licenseJson())}; }

HttpResponse describeMetadata(const ModelView& models) {
  OrderedJson served = OrderedJson::array();
  for (const auto& model : models.list()) {
    served.push_back(OrderedJson{{"shortName", model->name}, {"modelUrl", ""}});
  }
  return {.body = toText(OrderedJson{{"version", CHORUS_VERSION},
                                     {"assetInfo", OrderedJson::array()},
                                     {"licenseInfo", licenseJson()},
                                     {"modelInfo", std::move(served)},
                                     {"repository_override", ""},
                                     {"selectedModelProfileId", ""}})};
}

HttpResponse describeManifest(const ModelView& models) {
  // A JSON string is a YAML string too, so names need no other quoting.
  std::string yaml = fmt::format("release: {}\nmodels:\n", toText(CHORUS_VERSION));
  for (const auto& model : models.list()) {
    yaml += fmt::format("  - name: {}\n    fingerprint: {}\n", toText(model->name), toText(model->fingerprint));
  }
  return {.body = toText(OrderedJson{{"manifest_file", std::move(yaml)}, {"repository_override", ""}})};
}

}  // namespace chorus::server
