#include "text/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "formats/sentencepiece_model.h"
#include "text/tokenizer/sentencepiece_import.h"
#include "text/tokenizer/tokenizer_schema.h"
#include "text/unicode.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTemplateBytes = size_t{1} << 20;
constexpr size_t kMaxTemplates = 64;
constexpr size_t kMaxModelBytes = size_t{64} << 20;
constexpr const char* kMoreTemplates = "additional_chat_templates";
constexpr const char* kFiles[] = {"tokenizer.json",          "tokenizer.model",   "tokenizer_config.json",
                                  "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
                                  "chat_template.json"};

bool hasTokenizer(const fs::path& dir) {
  return fs::exists(dir / "tokenizer.json") || fs::exists(dir / "tokenizer.model");
}

class Directory {
 public:
  Directory(const fs::path& dir, const fs::path& fallback)
      : dir_(dir), fallback_(hasTokenizer(dir) ? fs::path() : fallback) {}

  // Empty when there is none.
  fs::path find(const char* name) const {
    if (fs::exists(dir_ / name)) return dir_ / name;
    return !fallback_.empty() && fs::exists(fallback_ / name) ? fallback_ / name : fs::path();
  }
  Json readJson(const char* name) const {
    const fs::path path = find(name);
    return path.empty() ? Json() : readJsonFile(path);
  }
  const fs::path& path() const { return dir_; }

 private:
  fs::path dir_, fallback_;
};

void addSpecialTokensMap(const Json& map, Json& config) {
  if (!map.is_object()) return;
  for (const auto& [name, value] : map.items()) {
    if (!config.contains(name)) config[name] = value;
  }
}

// {"text": id} of files from before added_tokens_decoder.
void addAddedTokens(const Json& added, Json& config, const std::string& source) {
  if (!added.is_object()) return;
  Json& decoder = config["added_tokens_decoder"];
  if (decoder.is_null()) decoder = Json::object();
  if (!decoder.is_object()) fail(ErrorCode::kInvalidArgument, "{}: 'added_tokens_decoder' must be an object", source);
  std::set<std::string> special;
  for (const auto& [name, value] : config.items()) {
    if (name.ends_with("_token") && value.is_string()) special.insert(value.get<std::string>());
    if (name == "additional_special_tokens" && value.is_array()) {
      for (const Json& one : value) {
        if (one.is_string()) special.insert(one.get<std::string>());
      }
    }
  }
  for (const auto& [content, id] : added.items()) {
    if (!id.is_number_unsigned())
      fail(ErrorCode::kCorrupt, "{}: added_tokens.json has an id that is not a number", source);
    const std::string key = std::to_string(id.get<uint64_t>());
    if (decoder.contains(key)) continue;
    decoder[key] = {{"content", content}, {"special", special.contains(content)}, {"normalized", false}};
  }
}

std::string readTemplate(const fs::path& path) { return toValidUtf8(readFile(path, kMaxTemplateBytes)); }

// Templates in files of their own, by name.
std::map<std::string, std::string> templateFiles(const Directory& directory) {
  std::map<std::string, std::string> templates;
  const fs::path more = directory.find(kMoreTemplates);
  if (!more.empty() && fs::is_directory(more)) {
    for (const auto& entry : fs::directory_iterator(more)) {
      if (entry.path().extension() != ".jinja") continue;
      if (templates.size() == kMaxTemplates)
        fail(ErrorCode::kUnsupported, "{}: more than {} templates", more.string(), kMaxTemplates);
      templates[entry.path().stem().string()] = readTemplate(entry.path());
    }
  }
  if (const fs::path path = directory.find("chat_template.jinja"); !path.empty())
    templates["default"] = readTemplate(path);
  return templates;
}

// As a list of names and templates in the config, where files' templates take the place of the config's.
void addTemplates(const Directory& directory, Json& config) {
  const auto files = templateFiles(directory);
  Json& templates = config["chat_template"];
  if (files.empty()) {
    if (templates.is_null()) {
      const Json processor = directory.readJson("chat_template.json");
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

TokenizerFiles readTokenizerFiles(const fs::path& dir, const fs::path& fallback) {
  const Directory directory(dir, fallback);
  TokenizerFiles files;
  fs::path path = directory.find("tokenizer.json");
  const bool is_json = !path.empty();
  if (!is_json) path = directory.find("tokenizer.model");
  if (path.empty()) {
    fail(ErrorCode::kNotFound, "{}: there is no tokenizer.json and no tokenizer.model; give a directory that has one",
         dir.string());
  }
  files.source = path.string();
  files.config = directory.readJson("tokenizer_config.json");
  if (!files.config.is_object()) files.config = Json::object();
  addSpecialTokensMap(directory.readJson("special_tokens_map.json"), files.config);
  if (is_json) {
    files.tokenizer = parseTokenizerJson(readFile(path, kMaxModelBytes), files.source);
  } else {
    const std::string bytes = readFile(path, kMaxModelBytes);
    addAddedTokens(directory.readJson("added_tokens.json"), files.config, files.source);
    const auto model = parseSentencePieceModel(std::as_bytes(std::span(bytes)), files.source);
    files.tokenizer = importSentencePiece(model, files.config, files.source);
  }
  addTemplates(directory, files.config);
  return files;
}

bool hasTokenizerFiles(const fs::path& dir) {
  return std::any_of(std::begin(kFiles), std::end(kFiles), [&](const char* name) { return fs::exists(dir / name); }) ||
         fs::exists(dir / kMoreTemplates);
}

std::string tokenizerFilesDigest(const fs::path& dir) {
  std::vector<fs::path> paths;
  for (const char* name : kFiles) {
    if (fs::exists(dir / name)) paths.push_back(dir / name);
  }
  if (fs::is_directory(dir / kMoreTemplates)) {
    for (const auto& entry : fs::directory_iterator(dir / kMoreTemplates)) paths.push_back(entry.path());
  }
  if (paths.empty()) return {};
  std::sort(paths.begin(), paths.end());
  Sha256 hash;
  for (const fs::path& path : paths) {
    const std::string name = path.lexically_relative(dir).string();
    const std::string contents = readFile(path, kMaxModelBytes);
    hash.update(std::to_string(name.size()) + " " + name + " " + std::to_string(contents.size()) + " ");
    hash.update(contents);
  }
  return hash.hex();
}

}  // namespace chorus
