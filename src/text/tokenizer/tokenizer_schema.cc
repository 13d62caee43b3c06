#include "text/tokenizer/tokenizer_schema.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "text/unicode.h"

namespace chorus {
namespace {

enum class Kind { kBool, kString, kUint32, kUint64 };
enum class Presence { kRequired, kOptional, kNullable };  // nullable: absent or null

struct Field {
  const char* name;
  Kind kind;
  Presence presence = Presence::kRequired;
};

constexpr Field kAddedToken[] = {{"content", Kind::kString}, {"single_word", Kind::kBool}, {"lstrip", Kind::kBool},
                                 {"rstrip", Kind::kBool},    {"normalized", Kind::kBool},  {"special", Kind::kBool},
                                 {"id", Kind::kUint32}};
constexpr Field kByteLevel[] = {
    {"add_prefix_space", Kind::kBool}, {"trim_offsets", Kind::kBool}, {"use_regex", Kind::kBool, Presence::kOptional}};
constexpr Field kMetaspace[] = {{"prepend_scheme", Kind::kString, Presence::kOptional},
                                {"split", Kind::kBool, Presence::kOptional}};
constexpr Field kPunctuation[] = {{"behavior", Kind::kString, Presence::kOptional}};
constexpr Field kUnigram[] = {{"byte_fallback", Kind::kBool, Presence::kOptional}};
constexpr Field kModel[] = {{"type", Kind::kString, Presence::kOptional}};
constexpr Field kTruncation[] = {{"max_length", Kind::kUint64}, {"stride", Kind::kUint64}};
constexpr Field kPadding[] = {{"pad_to_multiple_of", Kind::kUint64, Presence::kNullable},
                              {"pad_id", Kind::kUint32},
                              {"pad_type_id", Kind::kUint32},
                              {"pad_token", Kind::kString}};
constexpr Field kPaddingLength[] = {{"Fixed", Kind::kUint64}};
constexpr Field kTemplatePiece[] = {{"type_id", Kind::kUint32}};
constexpr Field kTemplateToken[] = {{"id", Kind::kString}, {"type_id", Kind::kUint32}};
constexpr Field kTemplateTokenIds[] = {{"id", Kind::kString}};

const char* kindName(Kind kind) {
  switch (kind) {
    case Kind::kBool:
      return "true or false";
    case Kind::kString:
      return "a string";
    case Kind::kUint32:
    case Kind::kUint64:
      break;
  }
  return "a whole number in range";
}

bool isOf(Kind kind, const Json& value) {
  switch (kind) {
    case Kind::kBool:
      return value.is_boolean();
    case Kind::kString:
      return value.is_string();
    case Kind::kUint32:
      return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<uint32_t>::max();
    case Kind::kUint64:
      return value.is_number_unsigned();
  }
  return false;
}

[[noreturn]] void refuse(const std::string& where, std::string_view must) {
  fail(ErrorCode::kInvalidArgument, "{} must be {}", where, must);
}

// null when the object has no such member.
const Json& memberOf(const Json& object, const char* name) {
  static const Json kNone;
  const auto it = object.find(name);
  return it == object.end() ? kNone : *it;
}

template <size_t kCount>
void checkFields(const Json& object, const Field (&fields)[kCount], const std::string& where) {
  if (!object.is_object()) refuse(where, "an object");
  for (const Field& field : fields) {
    const auto it = object.find(field.name);
    const bool absent = it == object.end();
    if (absent && field.presence != Presence::kRequired) continue;
    if (!absent && it->is_null() && field.presence == Presence::kNullable) continue;
    if (absent) fail(ErrorCode::kInvalidArgument, "{}: '{}' is missing", where, field.name);
    if (!isOf(field.kind, *it)) refuse(where + ": '" + field.name + "'", kindName(field.kind));
  }
}

void checkChoice(const Json& value, std::initializer_list<std::string_view> choices, const std::string& where) {
  if (value.is_string() && std::count(choices.begin(), choices.end(), value.get_ref<const std::string&>()) > 0) return;
  std::string list;
  for (const std::string_view choice : choices) list += (list.empty() ? "" : " or ") + std::string(choice);
  refuse(where, list);
}

void checkTruncation(const Json& json, const std::string& where) {
  checkFields(json, kTruncation, where);
  if (json.contains("direction")) checkChoice(json["direction"], {"Left", "Right"}, where + ": 'direction'");
  checkChoice(memberOf(json, "strategy"), {"LongestFirst", "OnlyFirst", "OnlySecond"}, where + ": 'strategy'");
}

void checkPadding(const Json& json, const std::string& where) {
  checkFields(json, kPadding, where);
  checkChoice(memberOf(json, "direction"), {"Left", "Right"}, where + ": 'direction'");
  const Json& strategy = memberOf(json, "strategy");
  const std::string here = where + ": 'strategy'";
  if (!strategy.is_object()) return checkChoice(strategy, {"BatchLongest"}, here);
  checkFields(strategy, kPaddingLength, here);
  if (strategy.size() != 1) refuse(here, "BatchLongest or {\"Fixed\": length}");
}

// A list of {"Sequence": {"id": "A" or "B", "type_id"}} and {"SpecialToken": {"id", "type_id"}}.
void checkPieces(const Json& pieces, const std::string& where) {
  if (!pieces.is_array()) refuse(where, "a list");
  for (const Json& piece : pieces) {
    if (!piece.is_object() || piece.size() != 1) refuse(where, "a list of objects of one member");
    const std::string& name = piece.begin().key();
    const Json& value = piece.begin().value();
    if (name == "Sequence") {
      checkFields(value, kTemplatePiece, where + ".Sequence");
      checkChoice(memberOf(value, "id"), {"A", "B"}, where + ".Sequence: 'id'");
    } else if (name == "SpecialToken") {
      checkFields(value, kTemplateToken, where + ".SpecialToken");
    } else {
      refuse(where, "a list of Sequence and SpecialToken");
    }
  }
}

void checkTemplate(const Json& json, const std::string& where) {
  checkPieces(memberOf(json, "single"), where + ": 'single'");
  checkPieces(memberOf(json, "pair"), where + ": 'pair'");
  const Json& special = memberOf(json, "special_tokens");
  if (!special.is_object()) refuse(where + ": 'special_tokens'", "an object");
  for (const auto& [name, token] : special.items()) {
    const std::string here = where + ": special_tokens." + printable(name);
    checkFields(token, kTemplateTokenIds, here);
    const Json &ids = memberOf(token, "ids"), &tokens = memberOf(token, "tokens");
    const auto all = [](const Json& list, Kind kind) {
      return list.is_array() && std::all_of(list.begin(), list.end(), [&](const Json& v) { return isOf(kind, v); });
    };
    if (!all(ids, Kind::kUint32)) refuse(here + ": 'ids'", "a list of token ids");
    if (!all(tokens, Kind::kString)) refuse(here + ": 'tokens'", "a list of strings");
    if (ids.size() != tokens.size()) refuse(here + ": 'ids'", "as long as 'tokens'");
  }
}

// ["</s>", 2], which the processor's reader takes the id of.
void checkPair(const Json& json, const char* name, const std::string& where) {
  const Json& pair = memberOf(json, name);
  if (pair.is_array() && !pair.empty() && !pair[0].is_string()) refuse(where + ": '" + name + "'", "[token, id]");
}

// A normalizer, pre-tokenizer, post-processor or decoder, or a Sequence of them. Types that have nothing to check here,
// and unknown ones, are left to the component's own reader.
void checkComponent(const Json& json, const char* list, const std::string& where) {
  if (!json.is_object()) return;
  const Json& named = memberOf(json, "type");
  if (!named.is_string()) return;
  const auto& type = named.get_ref<const std::string&>();
  const std::string here = where + "." + printable(type);
  if (type == "ByteLevel" && std::string_view(list) != "normalizers") checkFields(json, kByteLevel, here);
  if (type == "Metaspace") {
    checkFields(json, kMetaspace, here);
    if (json.contains("prepend_scheme")) {
      checkChoice(json["prepend_scheme"], {"first", "never", "always"}, here + ": 'prepend_scheme'");
    }
  }
  if (type == "Punctuation") checkFields(json, kPunctuation, here);
  if (type == "TemplateProcessing") checkTemplate(json, here);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    checkPair(json, "sep", here);
    checkPair(json, "cls", here);
  }
  if (type == "Sequence") {
    const Json& parts = memberOf(json, list);
    if (!parts.is_array()) return;
    for (const Json& part : parts) checkComponent(part, list, here);
  }
}

void checkDocument(const Json& document, const std::string& source) {
  if (!document.is_object()) refuse(source, "a JSON object");
  const auto under = [&](const char* name) { return source + ": " + name; };
  for (const auto& [name, value] : document.items()) {
    if (name == "version") {
      checkChoice(value, {"1.0"}, under("'version'"));
    } else if (name == "truncation") {
      if (!value.is_null()) checkTruncation(value, under("truncation"));
    } else if (name == "padding") {
      if (!value.is_null()) checkPadding(value, under("padding"));
    } else if (name == "added_tokens") {
      if (!value.is_array()) refuse(under("'added_tokens'"), "a list");
      for (const Json& token : value) checkFields(token, kAddedToken, under("added_tokens"));
    } else if (name == "normalizer") {
      checkComponent(value, "normalizers", under("normalizer"));
    } else if (name == "pre_tokenizer") {
      checkComponent(value, "pretokenizers", under("pre_tokenizer"));
    } else if (name == "post_processor") {
      checkComponent(value, "processors", under("post_processor"));
    } else if (name == "decoder") {
      checkComponent(value, "decoders", under("decoder"));
    } else if (name == "model") {
      if (!value.is_object()) refuse(under("'model'"), "an object");
      checkFields(value, kModel, under("model"));
      if (memberOf(value, "type") == "Unigram") checkFields(value, kUnigram, under("model"));
    } else {
      fail(ErrorCode::kInvalidArgument, "{}: tokenizer.json has no field '{}'", source, printable(name));
    }
  }
}
}  // namespace

Json parseTokenizerJson(std::string_view text, const std::string& source) {
  Json document = parseJson(text, source, {.unique_keys = true});
  checkDocument(document, source);
  return document;
}

}  // namespace chorus
