#include "text/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/sha256.h"
#include "formats/sentencepiece_model.h"
#include "text/tokenizer/configured_tokens.h"
#include "text/tokenizer/rank_files_import.h"
#include "text/tokenizer/sentencepiece_import.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_schema.h"
#include "text/tokenizer/vocabulary_files_import.h"
#include "text/unicode.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;
constexpr size_t kMaxTemplateNames = 1024;  // in the directory of templates, which may hold other files
constexpr const char* kMoreTemplates = "additional_chat_templates";
// Files with the tokens, in order of precedence.
constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json",     "tekken.json",          "tokenizer.model",     "tiktoken.model", "qwen.tiktoken",
    "r50k_base.tiktoken", "cl100k_base.tiktoken", "o200k_base.tiktoken", "vocab.json",     "vocab.txt"};
constexpr const char* kOtherFiles[] = {"merges.txt",        "tokenizer_config.json", "special_tokens_map.json",
                                       "added_tokens.json", "chat_template.jinja",   "chat_template.json"};

bool isTemplate(std::string_view name) { return name.ends_with(".jinja"); }

// Reads files and checks the limit on their total size.
class Reader {
 public:
  Reader(const Directory& directory, const TokenizerFileLimits& limits) : directory_(directory), limits_(limits) {}

  // Does nothing if the file does not exist.
  void read(const std::string& name, TokenizerFileSet& set) {
    if (!directory_.stampOf(name)) return;
    std::string text = directory_.readFile(name, isTemplate(name) ? kMaxTemplateBytes : limits_.file_bytes);
    total_ += text.size();
    if (total_ > limits_.total_bytes) {
      fail(ErrorCode::kCorrupt, "{}: the tokenizer files exceed the limit of {} bytes", set.directory,
           limits_.total_bytes);
    }
    set.files[name] = std::move(text);
  }

  void readMoreTemplates(TokenizerFileSet& set) {
    if (!directory_.isDirectory(kMoreTemplates)) return;
    const auto directory = directory_.openDirectory(kMoreTemplates, directory_.links());
    const Directory::Names names = directory->names(kMaxTemplateNames);
    const std::string path = directory->path().string();
    if (!names.complete) fail(ErrorCode::kUnsupported, "{}: more than {} files", path, kMaxTemplateNames);
    size_t count = 0;
    for (const std::string& name : names.names) {
      if (!isTemplate(name)) continue;
      if (++count > kMaxChatTemplates) {
        fail(ErrorCode::kUnsupported, "{}: more than {} templates", path, kMaxChatTemplates);
      }
      read(std::string(kMoreTemplates) + "/" + name, set);
    }
  }

 private:
  const Directory& directory_;
  const TokenizerFileLimits& limits_;
  size_t total_ = 0;
};

// Finds the files of a set and, if it has no tokenizer, those of the fallback set.
class Lookup {
 public:
  Lookup(const TokenizerFileSet& files, const TokenizerFileSet* fallback)
      : files_(files), fallback_(files.hasTokenizer() ? nullptr : fallback) {}

  struct Found {
    const std::string* text = nullptr;  // null if the file does not exist
    std::string path;
  };
  Found find(const std::string& name) const {
    for (const TokenizerFileSet* set : {&files_, fallback_}) {
      if (set == nullptr) continue;
      if (const auto it = set->files.find(name); it != set->files.end()) {
        return {&it->second, (fs::path(set->directory) / name).string()};
      }
    }
    return {};
  }
  Json readJson(const char* name) const {
    const Found found = find(name);
    return found.text == nullptr ? Json() : parseJson(*found.text, found.path);
  }
  TokenizerConfigFile readConfig(const char* name) const {
    const Found found = find(name);
    if (found.text == nullptr) return {};
    return {*found.text, found.path, parseJson(*found.text, found.path)};
  }
  // Names of the additional templates; all come from one set, never from both.
  std::vector<std::string> moreTemplates() const {
    const std::string folder = std::string(kMoreTemplates) + "/";
    for (const TokenizerFileSet* set : {&files_, fallback_}) {
      if (set == nullptr) continue;
      std::vector<std::string> names;
      for (auto it = set->files.lower_bound(folder); it != set->files.end() && it->first.starts_with(folder); ++it) {
        names.push_back(it->first);
      }
      if (!names.empty()) return names;
    }
    return {};
  }

 private:
  const TokenizerFileSet& files_;
  const TokenizerFileSet* fallback_;
};

// Builds the document of a tokenizer that comes in another file than tokenizer.json.
Json importTokenizer(const std::string& name, std::string_view text, const Lookup& lookup, Json& config,
                     const std::string& source, WorkMeter& meter) {
  if (name == "tekken.json") return importTekken(parseJson(text, source), config, source);
  if (name == "vocab.txt") return importVocabText(text, config, source);
  if (name == "vocab.json") {
    const auto merges = lookup.find("merges.txt");
    if (merges.text == nullptr) {
      fail(ErrorCode::kNotFound, "{}: merges.txt is missing beside this file, and there is no tokenizer.json", source);
    }
    return importVocabAndMerges(parseJson(text, source), *merges.text, config, source);
  }
  if (name != "tokenizer.model" || isTiktokenFile(text)) return importTiktoken(text, name, config, source);
  return importSentencePiece(parseSentencePieceModel(std::as_bytes(std::span(text)), source), config, source, meter);
}

// Templates that have their own files, by name.
std::map<std::string, std::string> templateFiles(const Lookup& lookup) {
  std::map<std::string, std::string> templates;
  for (const std::string& name : lookup.moreTemplates())
    templates[fs::path(name).stem().string()] = toValidUtf8(*lookup.find(name).text);
  if (const auto found = lookup.find("chat_template.jinja"); found.text != nullptr)
    templates["default"] = toValidUtf8(*found.text);
  return templates;
}

// Stores the templates in the config as a list of names and templates; templates in files replace those of the config.
void addTemplates(const Lookup& lookup, Json& config) {
  const auto files = templateFiles(lookup);
  Json& templates = config["chat_template"];
  if (files.empty()) {
    if (templates.is_null()) {
      const Json processor = lookup.readJson("chat_template.json");
      if (processor.is_object() && processor.contains("chat_template")) templates = processor["chat_template"];
    }
    return;
  }
  Json list = Json::array();
  for (const auto& [name, text] : files) list.push_back({{"name", name}, {"template", text}});
  if (templates.is_string() && !files.contains("default"))
    list.push_back({{"name", "default"}, {"template", templates}});
  templates = std::move(list);
}

}  // namespace

bool TokenizerFileSet::hasTokenizer() const {
  return std::ranges::any_of(kTokenizerFiles, [&](const char* name) { return files.contains(name); });
}

size_t TokenizerFileSet::bytes() const {
  size_t sum = 0;
  for (const auto& [name, text] : files) sum += text.size();
  return sum;
}

std::string TokenizerFileSet::digest() const {
  Sha256 hash;
  for (const auto& [name, text] : files) {
    hash.update(std::to_string(name.size()) + " " + name + " " + std::to_string(text.size()) + " ");
    hash.update(text);
  }
  return hash.hex();
}

bool hasTokenizer(const fs::path& directory) {
  return std::ranges::any_of(kTokenizerFiles, [&](const char* name) { return fs::exists(directory / name); });
}

bool hasTokenizerFiles(const Directory& directory) {
  return directory.hasName(kMoreTemplates) ||
         std::ranges::any_of(kTokenizerFiles, [&](const char* name) { return directory.hasName(name); }) ||
         std::ranges::any_of(kOtherFiles, [&](const char* name) { return directory.hasName(name); });
}

TokenizerFileSet readTokenizerFileSet(const Directory& directory, const TokenizerFileLimits& limits) {
  TokenizerFileSet set{directory.path().string(), {}};
  Reader reader(directory, limits);
  // Files of a lower precedence are not used; a tekken.json beside a tokenizer.json may have 20 MB.
  for (const char* name : kTokenizerFiles) {
    reader.read(name, set);
    if (set.files.contains(name)) break;
  }
  for (const char* name : kOtherFiles) reader.read(name, set);
  reader.readMoreTemplates(set);
  return set;
}

TokenizerFileSet readTokenizerFileSet(const fs::path& directory) {
  if (!fs::is_directory(directory)) return {directory.string(), {}};
  return readTokenizerFileSet(*Directory::open(directory));
}

TokenizerFiles parseTokenizerFiles(const TokenizerFileSet& set, const TokenizerFileSet* fallback) {
  WorkMeter meter;
  return parseTokenizerFiles(set, fallback, meter);
}

TokenizerFiles parseTokenizerFiles(const TokenizerFileSet& set, const TokenizerFileSet* fallback, WorkMeter& meter) {
  const Lookup lookup(set, fallback);
  TokenizerFiles files;
  const auto* name =
      std::ranges::find_if(kTokenizerFiles, [&](const char* file) { return lookup.find(file).text != nullptr; });
  if (name == std::end(kTokenizerFiles)) {
    fail(ErrorCode::kNotFound,
         "{}: no tokenizer found; give a directory that has a tokenizer.json, tokenizer.model, tekken.json, vocab.json "
         "with merges.txt, vocab.txt, or a tiktoken file of a known name",
         set.directory);
  }
  const auto found = lookup.find(*name);
  files.source = found.path;
  const TokenizerConfigFile config = lookup.readConfig("tokenizer_config.json"),
                            map = lookup.readConfig("special_tokens_map.json"),
                            added = lookup.readConfig("added_tokens.json");
  files.config = config.json.is_object() ? config.json : Json::object();
  if (name == std::begin(kTokenizerFiles)) {
    files.tokenizer = parseTokenizerJson(*found.text, files.source);
    addConfiguredTokens(config, map, added, files.tokenizer, files.config);
  } else {
    addSpecialTokensMap(map, files.config);
    addAddedTokens(added, files.config);
    files.tokenizer = importTokenizer(*name, *found.text, lookup, files.config, files.source, meter);
    makeNamedTokensSpecial(files.config);
  }
  addTemplates(lookup, files.config);
  return files;
}

TokenizerFiles readTokenizerFiles(const fs::path& dir) { return parseTokenizerFiles(readTokenizerFileSet(dir)); }

}  // namespace chorus
