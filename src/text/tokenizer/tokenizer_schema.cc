#include "text/tokenizer/tokenizer_schema.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <span>

#include "base/error.h"
#include "text/tokenizer/token_model.h"
#include "text/unicode.h"

namespace chorus {
namespace {

enum class Need {
  kRequired,
  kDefault,   // may be missing, but not null
  kOptional,  // may be missing or null
};

// Throws unless the value is valid for the field `key` of the component `where`.
using Check = void (*)(const Json& value, const std::string& key, const std::string& where);

struct Field {
  const char* name;
  Need need;
  Check check;
};

struct Shape {
  const char* type;
  std::span<const Field> fields;
  void (*rule)(const Json& json, const std::string& where) = nullptr;  // checks relations between fields
};

[[noreturn]] void failKind(const std::string& key, const std::string& where, std::string_view kind) {
  fail(ErrorCode::kInvalidArgument, "{}: '{}' must be {}", where, key, kind);
}

void isBool(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_boolean()) failKind(key, where, "true or false");
}
void isString(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_string()) failKind(key, where, "a string");
}
void isCharacter(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_string() || countCharacters(value.get_ref<const std::string&>()) != 1)
    failKind(key, where, "one character");
}
void isNumber(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_number()) failKind(key, where, "a number");
}
void isSize(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_number_unsigned()) failKind(key, where, "an integer from 0");
}
void isId(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > std::numeric_limits<uint32_t>::max())
    failKind(key, where, "an integer from 0 to 4294967295");
}
void isObject(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_object()) failKind(key, where, "an object");
}
void isList(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_array()) failKind(key, where, "a list");
}
void isOneOf(const Json& value, const std::string& key, const std::string& where,
             std::initializer_list<std::string_view> names) {
  if (value.is_string() && std::find(names.begin(), names.end(), value.get_ref<const std::string&>()) != names.end())
    return;
  std::string kind;
  for (const std::string_view name : names) kind.append(kind.empty() ? "\"" : ", \"").append(name).append("\"");
  failKind(key, where, names.size() == 1 ? kind : "one of " + kind);
}
void isVersion(const Json& value, const std::string& key, const std::string& where) {
  isOneOf(value, key, where, {"1.0"});
}
void isSide(const Json& value, const std::string& key, const std::string& where) {
  isOneOf(value, key, where, {"Left", "Right"});
}
void isTruncationStrategy(const Json& value, const std::string& key, const std::string& where) {
  isOneOf(value, key, where, {"LongestFirst", "OnlyFirst", "OnlySecond"});
}
void isPaddingStrategy(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_object()) return isOneOf(value, key, where, {"BatchLongest"});
  if (value.size() != 1 || !value.contains("Fixed")) failKind(key, where, "\"BatchLongest\" or {\"Fixed\": SIZE}");
  isSize(value["Fixed"], "Fixed", where);
}
void isSplitBehavior(const Json& value, const std::string& key, const std::string& where) {
  isOneOf(value, key, where, {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"});
}
void isPrependScheme(const Json& value, const std::string& key, const std::string& where) {
  isOneOf(value, key, where, {"always", "first", "never"});
}
void isSequence(const Json& value, const std::string& key, const std::string& where) {
  isOneOf(value, key, where, {"A", "B"});
}
void isPattern(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_object() || value.size() != 1 || !(value.contains("String") || value.contains("Regex")) ||
      !value.begin()->is_string()) {
    failKind(key, where, "{\"String\": TEXT} or {\"Regex\": TEXT}");
  }
}
void isTokenAndId(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_array() || value.size() != 2 || !value[0].is_string()) failKind(key, where, "[token, id]");
  isId(value[1], key, where);
}
// All merges must have the same form: strings, or lists.
void isMerges(const Json& value, const std::string& key, const std::string& where) {
  isList(value, key, where);
  const auto all = [&](bool (*fits)(const Json&)) { return std::all_of(value.begin(), value.end(), fits); };
  if (!all([](const Json& merge) { return merge.is_string(); }) &&
      !all([](const Json& merge) { return merge.is_array(); })) {
    failKind(key, where, R"(a list of "a b", or one of ["a", "b"])");
  }
}

void checkField(const Json& json, const Field& field, const std::string& where) {
  const auto it = json.find(field.name);
  if (it == json.end()) {
    if (field.need == Need::kRequired) fail(ErrorCode::kInvalidArgument, "{}: '{}' is missing", where, field.name);
  } else if (field.need != Need::kOptional || !it->is_null()) {
    field.check(*it, field.name, where);
  }
}

void checkFields(const Json& json, std::span<const Field> fields, const std::string& where) {
  if (!json.is_object()) fail(ErrorCode::kInvalidArgument, "{}: expected a JSON object", where);
  for (const Field& field : fields) checkField(json, field, where);
}

template <Check check>
void isListOf(const Json& value, const std::string& key, const std::string& where) {
  isList(value, key, where);
  for (size_t i = 0; i < value.size(); ++i) check(value[i], fmt::format("{}[{}]", key, i), where);
}

template <const auto& kFields>
void hasFields(const Json& value, const std::string& key, const std::string& where) {
  checkFields(value, kFields, where + ": " + key);
}

const Shape* findShape(std::span<const Shape> shapes, const Json& json) {
  const auto type = json.is_object() ? json.find("type") : json.end();
  if (!json.is_object() || type == json.end() || !type->is_string()) return nullptr;
  const auto it = std::find_if(shapes.begin(), shapes.end(), [&](const Shape& shape) { return *type == shape.type; });
  return it == shapes.end() ? nullptr : &*it;
}

void checkShape(const Json& json, const Shape& shape, const std::string& where) {
  checkFields(json, shape.fields, where);
  if (shape.rule != nullptr) shape.rule(json, where);
}

// A component whose type is not in the table is refused by its own reader.
void checkPart(std::span<const Shape> shapes, const Json& json, const std::string& key, const std::string& where) {
  const Shape* shape = findShape(shapes, json);
  if (shape != nullptr) checkShape(json, *shape, where + ": " + key + "." + shape->type);
}

// Declared here, because components may contain components.
void isNormalizer(const Json& value, const std::string& key, const std::string& where);
void isPreTokenizer(const Json& value, const std::string& key, const std::string& where);
void isPostProcessor(const Json& value, const std::string& key, const std::string& where);
void isDecoder(const Json& value, const std::string& key, const std::string& where);

constexpr Field kTruncation[] = {{"direction", Need::kDefault, isSide},
                                 {"max_length", Need::kRequired, isSize},
                                 {"strategy", Need::kRequired, isTruncationStrategy},
                                 {"stride", Need::kRequired, isSize}};
constexpr Field kPadding[] = {
    {"strategy", Need::kRequired, isPaddingStrategy}, {"direction", Need::kRequired, isSide},
    {"pad_to_multiple_of", Need::kOptional, isSize},  {"pad_id", Need::kRequired, isId},
    {"pad_type_id", Need::kRequired, isId},           {"pad_token", Need::kRequired, isString}};
constexpr Field kAddedToken[] = {{"id", Need::kRequired, isId},
                                 {"content", Need::kRequired, isString},
                                 {"single_word", Need::kRequired, isBool},
                                 {"lstrip", Need::kRequired, isBool},
                                 {"rstrip", Need::kRequired, isBool},
                                 {"normalized", Need::kRequired, isBool},
                                 {"special", Need::kRequired, isBool}};

// Components that occur in more than one of the tables below.
constexpr Field kReplace[] = {{"pattern", Need::kRequired, isPattern}, {"content", Need::kRequired, isString}};
constexpr Field kByteLevel[] = {{"add_prefix_space", Need::kRequired, isBool},
                                {"trim_offsets", Need::kRequired, isBool},
                                {"use_regex", Need::kDefault, isBool}};
constexpr Field kMetaspace[] = {{"replacement", Need::kRequired, isCharacter},
                                {"add_prefix_space", Need::kOptional, isBool},
                                {"prepend_scheme", Need::kDefault, isPrependScheme},
                                {"split", Need::kOptional, isBool},
                                {"str_rep", Need::kOptional, isString}};
void metaspaceAgrees(const Json& json, const std::string& where) {
  const bool prefix = jsonGetOr<bool>(json, "add_prefix_space", true, where);
  if (!prefix && json.value("prepend_scheme", "always") != "never")
    fail(ErrorCode::kCorrupt, "{}: 'add_prefix_space' is false, but 'prepend_scheme' is not \"never\"", where);
}

constexpr Field kPrepend[] = {{"prepend", Need::kRequired, isString}};
constexpr Field kStripSides[] = {{"strip_left", Need::kRequired, isBool}, {"strip_right", Need::kRequired, isBool}};
constexpr Field kPrecompiled[] = {{"precompiled_charsmap", Need::kRequired, isString}};
constexpr Field kNormalizerList[] = {{"normalizers", Need::kRequired, isListOf<isNormalizer>}};
constexpr Field kBertNormalizer[] = {{"clean_text", Need::kRequired, isBool},
                                     {"handle_chinese_chars", Need::kRequired, isBool},
                                     {"strip_accents", Need::kOptional, isBool},
                                     {"lowercase", Need::kRequired, isBool}};
constexpr Shape kNormalizers[] = {
    {"BertNormalizer", kBertNormalizer}, {"Prepend", kPrepend},        {"Replace", kReplace}, {"Strip", kStripSides},
    {"Precompiled", kPrecompiled},       {"Sequence", kNormalizerList}};

constexpr Field kSplit[] = {{"pattern", Need::kRequired, isPattern},
                            {"behavior", Need::kRequired, isSplitBehavior},
                            {"invert", Need::kRequired, isBool}};
constexpr Field kDigits[] = {{"individual_digits", Need::kRequired, isBool}};
constexpr Field kPunctuation[] = {{"behavior", Need::kDefault, isSplitBehavior}};
constexpr Field kDelimiter[] = {{"delimiter", Need::kRequired, isCharacter}};
constexpr Field kFixedLength[] = {{"length", Need::kDefault, isSize}};
constexpr Field kPreTokenizerList[] = {{"pretokenizers", Need::kRequired, isListOf<isPreTokenizer>}};
constexpr Shape kPreTokenizers[] = {{"ByteLevel", kByteLevel},
                                    {"Metaspace", kMetaspace, metaspaceAgrees},
                                    {"Split", kSplit},
                                    {"Digits", kDigits},
                                    {"Punctuation", kPunctuation},
                                    {"CharDelimiterSplit", kDelimiter},
                                    {"FixedLength", kFixedLength},
                                    {"Sequence", kPreTokenizerList}};

constexpr Field kStripCount[] = {
    {"content", Need::kRequired, isCharacter}, {"start", Need::kRequired, isSize}, {"stop", Need::kRequired, isSize}};
constexpr Field kWordPieceDecoder[] = {{"prefix", Need::kRequired, isString}, {"cleanup", Need::kRequired, isBool}};
constexpr Field kCtc[] = {{"pad_token", Need::kRequired, isString},
                          {"word_delimiter_token", Need::kRequired, isString},
                          {"cleanup", Need::kRequired, isBool}};
constexpr Field kSuffix[] = {{"suffix", Need::kRequired, isString}};
constexpr Field kDecoderList[] = {{"decoders", Need::kRequired, isListOf<isDecoder>}};
constexpr Shape kDecoders[] = {{"ByteLevel", kByteLevel},
                               {"Metaspace", kMetaspace, metaspaceAgrees},
                               {"Replace", kReplace},
                               {"Strip", kStripCount},
                               {"WordPiece", kWordPieceDecoder},
                               {"CTC", kCtc},
                               {"BPEDecoder", kSuffix},
                               {"Sequence", kDecoderList}};

constexpr Field kSequencePiece[] = {{"id", Need::kRequired, isSequence}, {"type_id", Need::kRequired, isId}};
constexpr Field kSpecialPiece[] = {{"id", Need::kRequired, isString}, {"type_id", Need::kRequired, isId}};
void isPiece(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_object() || value.size() != 1) failKind(key, where, "one Sequence or SpecialToken");
  const auto piece = value.begin();
  if (piece.key() == "Sequence") return checkFields(*piece, kSequencePiece, where + ": " + key + ".Sequence");
  if (piece.key() == "SpecialToken") return checkFields(*piece, kSpecialPiece, where + ": " + key + ".SpecialToken");
  failKind(key, where, "one Sequence or SpecialToken");
}
constexpr Field kSpecialToken[] = {{"id", Need::kRequired, isString},
                                   {"ids", Need::kRequired, isListOf<isId>},
                                   {"tokens", Need::kRequired, isListOf<isString>}};
void areSpecialTokens(const Json& value, const std::string& key, const std::string& where) {
  isObject(value, key, where);
  for (const auto& [name, token] : value.items()) checkFields(token, kSpecialToken, where + ": " + printable(name));
}
constexpr Field kTemplate[] = {{"single", Need::kRequired, isListOf<isPiece>},
                               {"pair", Need::kRequired, isListOf<isPiece>},
                               {"special_tokens", Need::kRequired, areSpecialTokens}};
// Roberta's further fields only move offsets and are not required: without them it is read as a BertProcessing.
constexpr Field kEnds[] = {{"sep", Need::kRequired, isTokenAndId}, {"cls", Need::kRequired, isTokenAndId}};
constexpr Field kPostProcessorList[] = {{"processors", Need::kRequired, isListOf<isPostProcessor>}};
constexpr Shape kPostProcessors[] = {{"RobertaProcessing", kEnds},
                                     {"BertProcessing", kEnds},
                                     {"TemplateProcessing", kTemplate},
                                     {"Sequence", kPostProcessorList},
                                     {"ByteLevel", kByteLevel}};

constexpr Field kBpe[] = {{"dropout", Need::kOptional, isNumber},
                          {"unk_token", Need::kOptional, isString},
                          {"continuing_subword_prefix", Need::kOptional, isString},
                          {"end_of_word_suffix", Need::kOptional, isString},
                          {"fuse_unk", Need::kOptional, isBool},
                          {"byte_fallback", Need::kOptional, isBool},
                          {"ignore_merges", Need::kOptional, isBool},
                          {"vocab", Need::kRequired, isObject},
                          {"merges", Need::kRequired, isMerges}};
constexpr Field kUnigram[] = {
    {"unk_id", Need::kOptional, isSize}, {"byte_fallback", Need::kDefault, isBool}, {"vocab", Need::kRequired, isList}};
constexpr Field kWordPiece[] = {{"unk_token", Need::kRequired, isString},
                                {"continuing_subword_prefix", Need::kRequired, isString},
                                {"max_input_chars_per_word", Need::kRequired, isSize},
                                {"vocab", Need::kRequired, isObject}};
constexpr Field kWordLevel[] = {{"unk_token", Need::kRequired, isString}, {"vocab", Need::kRequired, isObject}};
constexpr Shape kModels[] = {
    {"BPE", kBpe}, {"Unigram", kUnigram}, {"WordPiece", kWordPiece}, {"WordLevel", kWordLevel}};
constexpr Field kModelType[] = {{"type", Need::kDefault, isString}};

void isNormalizer(const Json& value, const std::string& key, const std::string& where) {
  checkPart(kNormalizers, value, key, where);
}
void isPreTokenizer(const Json& value, const std::string& key, const std::string& where) {
  checkPart(kPreTokenizers, value, key, where);
}
void isDecoder(const Json& value, const std::string& key, const std::string& where) {
  checkPart(kDecoders, value, key, where);
}
// Hugging Face's reader ignores the type of a post-processor: it takes the first one, in the order of the table, whose
// fields are present.
void isPostProcessor(const Json& value, const std::string& key, const std::string& where) {
  checkPart(kPostProcessors, value, key, where);
  const Shape* own = findShape(kPostProcessors, value);
  if (own == nullptr) return;
  for (const Shape& other : kPostProcessors) {
    if (other.fields.data() == own->fields.data()) return;
    const auto here = [&](const Field& field) { return value.contains(field.name); };
    if (std::all_of(other.fields.begin(), other.fields.end(), here))
      fail(ErrorCode::kCorrupt, "{}: '{}' has the type {} but the fields of a {}", where, key, own->type, other.type);
  }
}
void isModel(const Json& value, const std::string& key, const std::string& where) {
  checkFields(value, kModelType, where + ": " + key);
  const std::string type = tokenModelType(value, where);
  // Unlike other components, a model of another type may be one that only this program writes.
  const auto* shape =
      std::find_if(std::begin(kModels), std::end(kModels), [&](const Shape& s) { return type == s.type; });
  if (shape == std::end(kModels)) {
    fail(ErrorCode::kUnsupported, "{}: {}: the model '{}' is not supported; BPE, Unigram, WordPiece and WordLevel are",
         where, key, printable(type));
  }
  checkFields(value, shape->fields, where + ": " + key);
}

constexpr Field kDocument[] = {{"version", Need::kDefault, isVersion},
                               {"truncation", Need::kOptional, hasFields<kTruncation>},
                               {"padding", Need::kOptional, hasFields<kPadding>},
                               {"added_tokens", Need::kDefault, isListOf<hasFields<kAddedToken>>},
                               {"normalizer", Need::kOptional, isNormalizer},
                               {"pre_tokenizer", Need::kOptional, isPreTokenizer},
                               {"post_processor", Need::kOptional, isPostProcessor},
                               {"decoder", Need::kOptional, isDecoder},
                               {"model", Need::kRequired, isModel}};
}  // namespace

Json parseTokenizerJson(std::string_view text, const std::string& source) {
  Json json = parseJson(text, source, {.unique_keys = true, .map = "/model/vocab"});
  checkFields(json, kDocument, source);
  for (const auto& [key, value] : json.items()) {
    if (std::none_of(std::begin(kDocument), std::end(kDocument), [&](const Field& f) { return key == f.name; }))
      fail(ErrorCode::kInvalidArgument, "{}: unknown field '{}'", source, printable(key));
  }
  return json;
}

}  // namespace chorus
