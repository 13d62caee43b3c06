#include "text/tokenizer/precompiled_normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "text/utf8_text.h"

namespace chorus {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;

class PrecompiledNormalizer final : public NormalizerStage {
 public:
  // Throws Error(kCorrupt) if a value points inside a character.
  PrecompiledNormalizer(std::vector<uint32_t> trie, Utf8Text texts, const std::string& source)
      : trie_(std::move(trie)), texts_(std::move(texts)) {
    for (const uint32_t unit : trie_) {
      const size_t value = unit & ~kValueBit;
      if ((unit & kValueBit) != 0 && value < texts_.size() && !texts_.view().isBoundary(value)) {
        fail(ErrorCode::kCorrupt, "{}: 'precompiled_charsmap' has a text that begins inside a character", source);
      }
    }
  }

  // A short grapheme that begins with a key of the map is replaced as a whole by that key's text; otherwise each of its
  // characters is mapped separately. Hugging Face's implementation, with which the models were published, does the
  // same.
  void normalize(Utf8View text, EncodeWork& work, ScratchText& out) const override {
    constexpr uint64_t kWorkPerCharacter = 16;
    out.reserve(text.size());
    size_t begin = 0;
    utf8proc_int32_t state = 0;
    std::optional<uint32_t> previous;
    for (size_t at = 0; at < text.size();) {
      work.meter.charge(kWorkPerCharacter);
      const auto character = text.characterAt(at);
      const bool breaks =
          previous && utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(*previous),
                                                       static_cast<utf8proc_int32_t>(character.code), &state);
      if (breaks && at > begin) {
        appendGrapheme(text.sub(begin, at), out);
        begin = at;
      }
      previous = character.code;
      at += character.length;
    }
    if (begin < text.size()) appendGrapheme(text.from(begin), out);
  }

  size_t memoryBytes() const override { return sizeof(*this) + trie_.capacity() * sizeof(uint32_t) + texts_.size(); }

 private:
  static constexpr uint32_t kValueBit = 0x80000000;

  void appendGrapheme(Utf8View grapheme, ScratchText& out) const {
    if (grapheme.size() < 6) {
      if (const auto mapped = find(grapheme.bytes())) return out.append(*mapped);
    }
    for (size_t at = 0; at < grapheme.size();) {
      const size_t end = at + grapheme.characterAt(at).length;
      const Utf8View character = grapheme.sub(at, end);
      out.append(find(character.bytes()).value_or(character));
      at = end;
    }
  }

  // Returns the text of the shortest map key that `key` begins with.
  std::optional<Utf8View> find(std::string_view key) const {
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
      // A unit that the constructor did not check, because it lacks kValueBit, can be reached here too: check the
      // offset again.
      const size_t from = trie_[node] & ~kValueBit;
      if (from >= texts_.size() || !texts_.view().isBoundary(from)) return std::nullopt;
      const size_t end = texts_.bytes().find('\0', from);
      return texts_.view().sub(from, std::min(end, texts_.size()));
    }
    return std::nullopt;
  }

  std::vector<uint32_t> trie_;  // not empty
  Utf8Text texts_;
};

}  // namespace

std::unique_ptr<const NormalizerStage> makePrecompiledNormalizer(const Json& charsmap, const std::string& source) {
  std::string bytes;
  if (charsmap.is_string()) {
    auto decoded = decodeBase64(charsmap.get_ref<const std::string&>());
    if (!decoded) fail(ErrorCode::kCorrupt, "{}: 'precompiled_charsmap' is not base64", source);
    bytes = std::move(*decoded);
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
    fail(ErrorCode::kCorrupt, "{}: 'precompiled_charsmap' does not match the size in its header", source);
  }
  std::vector<uint32_t> trie(size / 4);
  for (size_t i = 0; i < trie.size(); ++i) trie[i] = unitAt(4 + 4 * i);
  auto texts = Utf8Text::check(bytes.substr(4 + size));
  if (!texts) fail(ErrorCode::kCorrupt, "{}: 'precompiled_charsmap' has texts that are not UTF-8", source);
  return std::make_unique<PrecompiledNormalizer>(std::move(trie), std::move(*texts), source);
}

}  // namespace chorus
