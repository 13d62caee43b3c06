#include "text/oniguruma_types.h"

#include <oniguruma.h>

#include <algorithm>
#include <bitset>
#include <iterator>

#include "text/newer_characters_table.h"

namespace chorus {
namespace {

constexpr uint32_t kPage = 256, kEnd = 0x110000;

// The pages with a character of the table. Nearly all characters of texts are on other pages.
const std::bitset<kEnd / kPage>& newerPages() {
  static const auto kPages = [] {
    std::bitset<kEnd / kPage> pages;
    for (const NewerCharacters& run : kNewerCharacters) {
      for (uint32_t page = run.first / kPage; page <= run.last / kPage; ++page) pages.set(page);
    }
    return pages;
  }();
  return kPages;
}

bool isInstalledType(uint32_t code, int type) {
  return ONIG_ENCODING_UTF8->is_code_ctype(code, static_cast<OnigCtype>(type)) != 0;
}

int unassigned() {
  static const int kType = [] {
    OnigUChar name[] = "Cn";
    return ONIG_ENCODING_UTF8->property_name_to_ctype(ONIG_ENCODING_UTF8, name, name + 2);
  }();
  return kType;
}

const NewerCharacters* findNewer(uint32_t code) {
  if (code >= kEnd || !newerPages().test(code / kPage)) return nullptr;
  const auto* run = std::upper_bound(std::begin(kNewerCharacters), std::end(kNewerCharacters), code,
                                     [](uint32_t c, const NewerCharacters& other) { return c < other.first; });
  if (run == std::begin(kNewerCharacters) || code > (--run)->last) return nullptr;
  return isInstalledType(code, unassigned()) ? run : nullptr;
}
}  // namespace

bool hasOnigurumaType(uint32_t code, int type) {
  const NewerCharacters* newer = findNewer(code);
  return isInstalledType(newer == nullptr ? code : newer->older, type);
}

bool isKnownToOniguruma(uint32_t code) { return findNewer(code) == nullptr; }

}  // namespace chorus
