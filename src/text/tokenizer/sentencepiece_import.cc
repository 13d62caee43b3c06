#include "text/tokenizer/sentencepiece_import.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/utf8_json.h"
#include "text/tokenizer/vocabulary.h"
#include "text/unicode.h"

namespace chorus {
namespace {

using Kind = SentencePieceModel::Kind;
using Type = SentencePiece::Type;

constexpr const char* kSpace = "\xE2\x96\x81";  // U+2581, SentencePiece's mark for a space
// Limit on the merges, relative to the size of the model: kMergeBytes and the text of each merge are counted, against
// kMergesPerByte for each byte of pieces.
constexpr size_t kMergesPerByte = 24;
constexpr size_t kMergeBytes = 64, kPieceBytes = 16;

// The merges, which the file of a byte pair model does not list: every way to join two pieces into a piece, in the
// order in which training found the pieces.
Json mergesOf(const SentencePieceModel& model, const std::string& source, WorkMeter& meter) {
  std::vector<Utf8Text> texts;
  size_t bytes = 0;
  for (const auto& piece : model.pieces) {
    texts.push_back(checkedText(piece.text, "pieces", source));
    bytes += kPieceBytes + piece.text.size();
  }
  const Vocabulary vocabulary = Vocabulary::fromList(std::move(texts));
  const size_t most = kMergesPerByte * bytes;
  size_t taken = 0;
  Json merges = Json::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Utf8View text = *vocabulary.tokenText(static_cast<int32_t>(id));
    for (size_t cut = text.characterAt(0).length; cut < text.size(); cut += text.characterAt(cut).length) {
      meter.charge(text.size());  // both parts are hashed
      const Utf8View left = text.sub(0, cut), right = text.from(cut);
      if (!vocabulary.tokenId(left.bytes()) || !vocabulary.tokenId(right.bytes())) continue;
      // Bounds the total size of the texts of all merges.
      taken += text.size() + kMergeBytes;
      if (taken > most) fail(ErrorCode::kUnsupported, "{}: the model's pieces have too many merges", source);
      merges.push_back(Json::array({left.bytes(), right.bytes()}));
    }
  }
  return merges;
}

Json modelOf(const SentencePieceModel& model, const std::string& source, WorkMeter& meter) {
  const std::string unknown = model.unk_id >= 0 ? model.pieces[static_cast<size_t>(model.unk_id)].text : "";
  if (model.kind == Kind::kUnigram) {
    Json vocab = Json::array();
    for (const auto& piece : model.pieces) vocab.push_back(Json::array({piece.text, piece.score}));
    return {{"type", "Unigram"},
            {"vocab", std::move(vocab)},
            {"unk_id", std::max(model.unk_id, 0)},
            {"byte_fallback", model.byte_fallback}};
  }
  Json vocab = Json::object();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (!vocab.emplace(model.pieces[id].text, id).second) {
      fail(ErrorCode::kCorrupt, "{}: the piece '{}' occurs twice", source, printable(model.pieces[id].text));
    }
  }
  Json json = {{"type", "BPE"},
               {"vocab", std::move(vocab)},
               {"merges", mergesOf(model, source, meter)},
               {"fuse_unk", true},
               {"byte_fallback", model.byte_fallback}};
  if (!unknown.empty()) json["unk_token"] = unknown;
  return json;
}

Json normalizerOf(const SentencePieceModel& model, bool prepend) {
  Json parts = Json::array();
  const auto replace = [&](Json pattern, const char* content) {
    parts.push_back({{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content}});
  };
  if (!model.precompiled_charsmap.empty()) {
    const auto& map = model.precompiled_charsmap;
    parts.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", Json::binary({map.begin(), map.end()})}});
  }
  if (model.remove_extra_whitespaces) {
    replace({{"Regex", "\\A +| +\\z"}}, "");
    replace({{"Regex", " {2,}"}}, " ");
  }
  if (prepend) parts.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  replace({{"String", " "}}, kSpace);
  // Spaces at the end are removed after they were marked, and with them the marks that the text itself has there.
  if (model.remove_extra_whitespaces) replace({{"Regex", "\u2581+\\z"}}, "");
  return {{"type", "Sequence"}, {"normalizers", std::move(parts)}};
}

Json decoderOf(bool strip) {
  Json parts = Json::array({{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                            {{"type", "ByteFallback"}},
                            {{"type", "Fuse"}}});
  if (strip) parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(parts)}};
}

// Id of the piece that config[key] names; otherwise `fallback`, the model's own id, which is -1 if there is none.
int32_t specialId(const SentencePieceModel& model, const Json& config, const char* key, int32_t fallback) {
  const auto it = config.find(key);
  if (it == config.end()) return fallback;
  const Json named = it->is_object() ? it->value("content", Json()) : *it;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (named == model.pieces[id].text) return static_cast<int32_t>(id);
  }
  return fallback;
}

Json postProcessorOf(const SentencePieceModel& model, const Json& config, const std::string& source) {
  Json single = Json::array(), special = Json::object();
  const auto add = [&](int32_t id) {
    if (id < 0) return;
    const std::string& text = model.pieces[static_cast<size_t>(id)].text;
    single.push_back({{"SpecialToken", {{"id", text}}}});
    special[text] = {{"ids", Json::array({static_cast<uint32_t>(id)})}};
  };
  if (jsonGetOr<bool>(config, "add_bos_token", true, source)) add(specialId(model, config, "bos_token", model.bos_id));
  single.push_back({{"Sequence", {{"id", "A"}}}});
  if (jsonGetOr<bool>(config, "add_eos_token", false, source)) add(specialId(model, config, "eos_token", model.eos_id));
  return {{"type", "TemplateProcessing"}, {"single", std::move(single)}, {"special_tokens", std::move(special)}};
}

}  // namespace

Json importSentencePiece(const SentencePieceModel& model, Json& config, const std::string& source, WorkMeter& meter) {
  if (model.kind != Kind::kUnigram && model.kind != Kind::kBpe) {
    fail(ErrorCode::kUnsupported, "{}: a sentencepiece model of words or characters is not supported", source);
  }
  if (!model.escape_whitespaces || model.whitespace_as_suffix) {
    fail(ErrorCode::kUnsupported,
         "{}: a sentencepiece model that doesn't mark spaces at the front of pieces is not "
         "supported",
         source);
  }
  for (const auto& piece : model.pieces) {
    if (!Utf8View::check(piece.text)) fail(ErrorCode::kCorrupt, "{}: a piece is not UTF-8", source);
  }
  if (!config.is_object()) config = Json::object();
  const bool prefix = jsonGetOr<bool>(config, "add_prefix_space", model.add_dummy_prefix, source);
  const bool legacy = jsonGetOr<bool>(config, "legacy", true, source);

  Json json;
  json["model"] = modelOf(model, source, meter);
  json["normalizer"] = normalizerOf(model, prefix && legacy);
  if (prefix && !legacy) {
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", kSpace}, {"prepend_scheme", "first"}, {"split", false}};
  }
  json["decoder"] = decoderOf(prefix);
  json["post_processor"] = postProcessorOf(model, config, source);

  Json added = Json::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    const bool special = piece.type == Type::kControl || piece.type == Type::kUnknown;
    if (!special && piece.type != Type::kUserDefined) continue;
    added.push_back({{"id", id}, {"content", piece.text}, {"special", special}, {"normalized", false}});
  }
  json["added_tokens"] = std::move(added);
  const auto name = [&](const char* key, int32_t id) {
    if (id >= 0 && !config.contains(key)) config[key] = model.pieces[static_cast<size_t>(id)].text;
  };
  name("unk_token", model.unk_id);
  name("bos_token", model.bos_id);
  name("eos_token", model.eos_id);
  name("pad_token", model.pad_id);
  return json;
}

}  // namespace chorus
