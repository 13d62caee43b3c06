#include "convert/sources/nemo.h"

#include <algorithm>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "convert/sources/nemo_tensors.h"
#include "convert/sources/source_paths.h"
#include "formats/gunzip.h"
#include "formats/nemo_layout.h"
#include "formats/sentencepiece_model.h"
#include "formats/tar_archive.h"
#include "formats/yaml.h"
#include "models/architecture.h"
#include "models/nemo_config.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

constexpr std::string_view kArchive = ".nemo";
constexpr std::string_view kConfigFile = "model_config.yaml";
constexpr size_t kMaxDirectoryFiles = 1 << 16;
constexpr size_t kMaxTokenizerBytes = size_t{64} << 20;

std::vector<std::string> filesBelow(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(dir, error); !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    if (entry.depth() > 2) entry.disable_recursion_pending();
    if (!entry->is_regular_file(error)) continue;
    names.push_back(entry->path().lexically_relative(dir).generic_string());
    if (names.size() > kMaxDirectoryFiles)
      fail(ErrorCode::kUnsupported, "{}: more than {} files", dir.string(), kMaxDirectoryFiles);
  }
  if (error) fail(ErrorCode::kNotFound, "{}: {}", dir.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// The archive in a directory that holds only one; empty: it holds none.
fs::path archiveIn(const fs::path& dir) {
  fs::path found;
  std::error_code error;
  for (auto entry = fs::directory_iterator(dir, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') || !name.ends_with(kArchive) || !entry->is_regular_file(error)) continue;
    if (!found.empty()) {
      fail(ErrorCode::kInvalidArgument, "{}: it holds several models, {} and {}; name one of them", dir.string(),
           found.filename().string(), name);
    }
    found = entry->path();
  }
  return found;
}

// The files of a model: members of a mapped archive, or mapped files of a directory.
class NemoFilesOfModel {
 public:
  explicit NemoFilesOfModel(const fs::path& path) : path_(path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored) && !isFile(path / kConfigFile)) path_ = archiveIn(path);
    if (fs::is_directory(path_, ignored)) {
      names_ = filesBelow(path_);
      return;
    }
    auto map = std::make_shared<const MappedFile>(path_);
    tar_ = map->bytes();
    owner_ = map;
    if (isGzip(tar_)) {
      // Weights never pack to a sixteenth.
      const uint64_t most = checkedAdd(checkedMul(tar_.size(), 16, "the archive"), 16 << 20, "the archive");
      const auto unpacked = gunzip(tar_, path_.string(), most, UnpackTo::kTemporaryFile);
      tar_ = unpacked->bytes();
      owner_ = unpacked;
    }
    members_ = readTar(PartialBytes(tar_), path_.string());
    for (const TarMember& member : members_) names_.push_back(member.name);
  }

  std::string source() const { return path_.string(); }
  const std::vector<std::string>& names() const { return names_; }
  bool isArchive() const { return owner_ != nullptr; }
  const std::shared_ptr<const void>& archiveOwner() const { return owner_; }
  Bytes archive() const { return tar_; }

  // The bytes of a file; `owner` receives their owner.
  Bytes read(const std::string& name, std::shared_ptr<const void>& owner) const {
    if (isArchive()) {
      const TarMember& member = *findMember(members_, name);
      owner = owner_;
      return tar_.subspan(member.offset, member.size);
    }
    const auto map = std::make_shared<const MappedFile>(path_ / name);
    owner = map;
    return map->bytes();
  }

 private:
  fs::path path_;
  std::vector<std::string> names_;
  std::vector<TarMember> members_;  // of an archive
  std::shared_ptr<const void> owner_;
  Bytes tar_;
};

struct OpenedConfig {
  NemoLayout layout;
  Json config;
  std::string source;  // of the config, for errors
};
OpenedConfig readConfigOf(const NemoFilesOfModel& files) {
  OpenedConfig read;
  read.layout = nemoLayout(files.names(), files.source());
  read.source = fmt::format("{}: {}", files.source(), read.layout.config);
  std::shared_ptr<const void> owner;
  const Bytes text = files.read(read.layout.config, owner);
  read.config = parseNemoConfig({reinterpret_cast<const char*>(text.data()), text.size()}, read.layout, read.source);
  return read;
}

DType dtypeOf(const OpenedConfig& opened, DType stored, const ConvertOptions& options) {
  if (options.dtype) return *options.dtype;
  if (stored == DType::kFloat16 || stored == DType::kBFloat16) return stored;
  const auto it = opened.config.find("precision");
  if (it == opened.config.end() || it->is_null()) return DType::kFloat32;
  const std::string precision = it->is_string() ? it->get<std::string>() : it->dump();
  if (precision.starts_with("bf16")) return DType::kBFloat16;
  if (precision.starts_with("16")) return DType::kFloat16;
  if (precision.starts_with("32")) return DType::kFloat32;
  fail(ErrorCode::kUnsupported, "{}: 'precision' is {}; give --dtype float32, float16 or bfloat16", opened.source,
       precision);
}

// The name of the file that a field such as tokenizer.model has: "nemo:HASH_tokenizer.model". Empty if there is none.
std::string artifactOf(const NemoFilesOfModel& files, const OpenedConfig& opened, const char* field) {
  const auto tokenizer = opened.config.find("tokenizer");
  if (tokenizer == opened.config.end() || !tokenizer->is_object()) return {};
  const auto it = tokenizer->find(field);
  if (it == tokenizer->end() || !it->is_string()) return {};
  std::string name = it->get<std::string>();
  if (name.starts_with("nemo:")) name.erase(0, 5);
  const std::string file = fs::path(name).filename().string();
  const std::string root = opened.layout.config.substr(0, opened.layout.config.size() - kConfigFile.size());
  const std::string full = root + file;
  return std::ranges::find(files.names(), full) == files.names().end() ? std::string() : full;
}

struct OpenedTokenizer {
  Bytes bytes;
  std::shared_ptr<const void> owner;  // of the bytes
  SentencePieceModel model;
};
OpenedTokenizer openTokenizer(const NemoFilesOfModel& files, const std::string& name) {
  OpenedTokenizer opened;
  opened.bytes = files.read(name, opened.owner);
  const std::string source = fmt::format("{}: {}", files.source(), name);
  if (opened.bytes.size() > kMaxTokenizerBytes) {
    fail(ErrorCode::kCorrupt, "{}: a tokenizer of {} bytes; the limit is {}", source, opened.bytes.size(),
         kMaxTokenizerBytes);
  }
  opened.model = parseSentencePieceModel(opened.bytes, source);
  return opened;
}

// Number of tokens of the archive's tokenizer; 0: it does not have one, or adds tokens of its own to it.
int64_t tokenizerVocabulary(const NemoFilesOfModel& files, const OpenedConfig& opened) {
  const std::string name = artifactOf(files, opened, "model");
  if (name.empty()) return 0;
  const Json& tokenizer = opened.config["tokenizer"];
  if (jsonGetOr<std::string>(tokenizer, "library", "", opened.source) != "sentencepiece" ||
      jsonGetOr(tokenizer, "sentencepiece_legacy", false, opened.source)) {
    return 0;
  }
  return std::ssize(openTokenizer(files, name).model.pieces);
}

bool recognisesNemo(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path.extension() == kArchive && fs::exists(path, ignored);
  if (fs::exists(path / "config.json", ignored)) return false;
  if (isFile(path / kConfigFile)) return true;
  try {
    return !archiveIn(path).empty();
  } catch (const Error&) {
    return true;  // several archives: open() says so
  }
}

bool saysAdapter(const Json& config) {
  const auto peft = config.find("peft");
  if (peft == config.end() || !peft->is_object()) return false;
  const auto scheme = peft->find("peft_scheme");
  return scheme != peft->end() && scheme->is_string() && *scheme != "none" && *scheme != "null";
}

// Refuses an adapter, whose config describes its base model too.
void checkIsModel(const NemoFilesOfModel& files, const OpenedConfig& opened) {
  if (!saysAdapter(opened.config)) return;
  fail(ErrorCode::kUnsupported,
       "{}: a NeMo adapter, not a model; give its base model, and the adapter's directory with --lora_dir",
       files.source());
}

void checkNemo(const fs::path& path) {
  const NemoFilesOfModel files(path);
  const OpenedConfig opened = readConfigOf(files);
  checkIsModel(files, opened);
  readNemoModelConfig(opened.config, opened.source);
}

SourceModel openNemo(const fs::path& path, const ConvertOptions& options) {
  const NemoFilesOfModel files(path);
  const OpenedConfig opened = readConfigOf(files);
  checkIsModel(files, opened);
  const NemoModelConfig read = readNemoModelConfig(opened.config, opened.source);
  SourceModel model = {.tensors = {}, .config = read.config, .table = {}, .format = SourceFormat::kNemo};
  NemoShards from = {opened.layout, opened.source, {}};
  if (files.isArchive()) model.tensors.keep(files.archiveOwner(), files.archive());
  for (const std::string& name : opened.layout.checkpoints) {
    std::shared_ptr<const void> owner;
    const Bytes bytes = files.read(name, owner);
    from.shards.push_back(parseTensorFile(bytes, fs::path(fmt::format("{}: {}", files.source(), name)), owner));
    if (!files.isArchive()) model.tensors.keep(std::move(owner), bytes);
    model.tensors.keep(from.shards.back().keepAlive());
  }
  const int64_t padded = paddedVocabulary(from, model.config);
  model.config.vocab_size = padded;
  for (const int64_t known : {tokenizerVocabulary(files, opened), read.vocabulary}) {
    if (known > 0 && known <= padded) model.config.vocab_size = known;
  }
  const TensorFile& first = from.shards.front();
  model.config.dtype = dtypeOf(opened, first.find(first.names().front())->dtype, options);
  applyOptions(options, model.config, opened.source);
  model.table = architectureOf(model.config, opened.source).weightTable(model.config);
  joinNemoShards(from, model.config, model.table, model.tensors);
  for (WeightRow& row : model.table) {
    const bool is_norm_weight = row.slot.kind == SlotKind::kNorm && row.slot.isWeight();
    // A head that the rank files hold, although the model ties it to the embedding.
    const bool is_tied = row.slot == slotOf(LinearId::kHead) && model.config.tie_word_embeddings;
    row.sources.push_back({.name = is_tied ? "transformer.vocab_embedding.weight" : joinedName(row),
                           .rows = row.shape[0],
                           .transform = {.add = is_norm_weight && read.norms_from_one ? 1.0f : 0.0f},
                           .format = SourceFormat::kNemo});
  }
  checkSources(model, {}, files.source(), std::string(kConfigFile));
  return model;
}

std::vector<std::pair<std::string, std::string>> tokenizerOfNemo(const fs::path& path) {
  const NemoFilesOfModel files(path);
  const OpenedConfig opened = readConfigOf(files);
  const std::string name = artifactOf(files, opened, "model");
  const auto tokenizer = opened.config.find("tokenizer");
  const bool described = tokenizer != opened.config.end() && tokenizer->is_object();
  const auto library = described ? jsonGetOr<std::string>(*tokenizer, "library", "", opened.source) : "";
  if (name.empty() || library != "sentencepiece") {
    const auto type = described ? jsonGetOr<std::string>(*tokenizer, "type", "", opened.source) : "";
    fail(ErrorCode::kNotFound,
         "{}: it holds no sentencepiece tokenizer{}; name the directory of the tokenizer with --tokenizer_dir",
         files.source(), type.empty() ? "" : fmt::format(", its config names {} of {}", type, library));
  }
  const OpenedTokenizer file = openTokenizer(files, name);
  std::vector<std::pair<std::string, std::string>> read;
  read.emplace_back("tokenizer.model",
                    std::string(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()));
  if (!readNemoModelConfig(opened.config, opened.source).begins_with_bos) {
    read.emplace_back("tokenizer_config.json", R"({"add_bos_token": false})");
  }
  return read;
}

std::vector<fs::path> filesOfNemo(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path.filename()};
  if (!isFile(path / kConfigFile)) return {archiveIn(path).filename()};
  const std::vector<std::string> names = filesBelow(path);
  const NemoLayout layout = nemoLayout(names, path.string());
  std::vector<fs::path> files = {layout.config};
  files.insert(files.end(), layout.checkpoints.begin(), layout.checkpoints.end());
  return files;
}
}  // namespace

bool holdsNemoAdapter(const fs::path& path) {
  try {
    return recognisesNemo(path) && saysAdapter(readConfigOf(NemoFilesOfModel(path)).config);
  } catch (const Error&) {
    return false;
  }
}

SourceReader nemoReader() {
  return {.kind = "NeMo model",
          .recognises = recognisesNemo,
          .check = checkNemo,
          .open = openNemo,
          .files = filesOfNemo,
          .tokenizer = tokenizerOfNemo};
}

}  // namespace chorus
