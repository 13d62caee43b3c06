#include "text/tokenizer/precompiled_normalizer.h"

#include <utf8proc.h>

#include <array>
#include <optional>
#include <vector>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;

std::string decodeBase64(std::string_view text, const std::string& source) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::array<int, 256> values;
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) values[static_cast<unsigned char>(kDigits[i])] = static_cast<int>(i);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) fail(ErrorCode::kCorrupt, "{}: 'precompiled_charsmap' is not base64", source);
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) >= 8) out.push_back(static_cast<char>(bits >> (count -= 8) & 0xFF));
  }
  return out;
}

class PrecompiledNormalizer final : public Normalizer {
 public:
  PrecompiledNormalizer(std::vector<uint32_t> trie, std::string texts)
      : trie_(std::move(trie)), texts_(std::move(texts)) {}

  // A short grapheme that begins with a character of the map becomes that character's text as a whole; the characters
  // of others one by one. So does Hugging Face's implementation, which the models were published with.
  std::string normalize(std::string_view text) const override {
    std::string out;
    out.reserve(text.size());
    size_t begin = 0;
    utf8proc_int32_t state = 0;
    std::optional<uint32_t> previous;
    for (size_t at = 0; at <= text.size();) {
      const bool end = at == text.size();
      const Utf8Step step = end ? Utf8Step{} : decodeUtf8(text.substr(at));
      const bool breaks =
          end || (previous && utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(*previous),
                                                               static_cast<utf8proc_int32_t>(step.code), &state));
      if (breaks && at > begin) {
        appendGrapheme(text.substr(begin, at - begin), out);
        begin = at;
      }
      if (end) break;
      previous = step.code;
      at += static_cast<size_t>(step.length);
    }
    return out;
  }

 private:
  void appendGrapheme(std::string_view grapheme, std::string& out) const {
    if (grapheme.size() < 6) {
      if (const auto mapped = find(grapheme)) {
        out += *mapped;
        return;
      }
    }
    for (size_t at = 0; at < grapheme.size();) {
      const auto character = grapheme.substr(at, static_cast<size_t>(utf8Length(grapheme[at])));
      out += find(character).value_or(character);
      at += character.size();
    }
  }

  // The text of the shortest key that key begins with.
  std::optional<std::string_view> find(std::string_view key) const {
    const auto offsetOf = [](uint32_t unit) { return size_t{unit >> 10} << ((unit & 0x200) >> 6); };
    size_t node = offsetOf(trie_[0]);
    for (const char c : key) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte == 0) return std::nullopt;
      node ^= byte;
      if (node >= trie_.size()) return std::nullopt;
      const uint32_t unit = trie_[node];
      if ((unit & 0x800000FF) != byte) return std::nullopt;
      node ^= offsetOf(unit);
      if (node >= trie_.size()) return std::nullopt;
      if ((unit >> 8 & 1) == 0) continue;
      const size_t from = trie_[node] & 0x7FFFFFFF;
      if (from >= texts_.size()) return std::nullopt;
      return std::string_view(texts_).substr(from, texts_.find('\0', from) - from);
    }
    return std::nullopt;
  }

  std::vector<uint32_t> trie_;  // not empty
  std::string texts_;           // valid UTF-8
};

}  // namespace

std::unique_ptr<const Normalizer> makePrecompiledNormalizer(const Json& charsmap, const std::string& source) {
  std::string bytes;
  if (charsmap.is_string()) {
    bytes = decodeBase64(charsmap.get_ref<const std::string&>(), source);
  } else if (charsmap.is_binary()) {
    const auto& binary = charsmap.get_binary();
    bytes.assign(binary.begin(), binary.end());
  } else {
    fail(ErrorCode::kInvalidArgument, "{}: 'precompiled_charsmap' must be a string of base64", source);
  }
  const auto unitAt = [&](size_t at) {
    uint32_t unit = 0;
    for (size_t i = 4; i-- > 0;) unit = unit << 8 | static_cast<unsigned char>(bytes[at + i]);
    return unit;
  };
  const size_t size = bytes.size() >= 4 ? unitAt(0) : 0;
  if (size < 4 || size % 4 != 0 || bytes.size() > kMaxBytes || size > bytes.size() - 4) {
    fail(ErrorCode::kCorrupt, "{}: 'precompiled_charsmap' contradicts its own size", source);
  }
  std::vector<uint32_t> trie(size / 4);
  for (size_t i = 0; i < trie.size(); ++i) trie[i] = unitAt(4 + 4 * i);
  std::string texts = bytes.substr(4 + size);
  if (toValidUtf8(texts) != texts)
    fail(ErrorCode::kCorrupt, "{}: 'precompiled_charsmap' has texts that are not UTF-8", source);
  return std::make_unique<PrecompiledNormalizer>(std::move(trie), std::move(texts));
}

}  // namespace chorus
