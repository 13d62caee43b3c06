#include "convert/sources/jax.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/unnamed_file.h"
#include "convert/sources/huggingface.h"
#include "convert/sources/jax_arrays.h"
#include "formats/flax_file.h"
#include "formats/huggingface_files.h"
#include "formats/npz.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFlaxModel = "flax_model.msgpack";
constexpr std::string_view kFlaxIndex = "flax_model.msgpack.index.json";

bool isThereFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::vector<fs::path> npzFilesOf(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (auto entry = fs::directory_iterator(dir, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().extension() == ".npz" && isThereFile(entry->path())) found.push_back(entry->path());
  }
  std::ranges::sort(found);
  return found;
}

// The directory of the config.
fs::path modelDirectory(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return path;
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

void checkJaxConfig(const fs::path& path) {
  const fs::path dir = modelDirectory(path);
  if (!isThereFile(dir / "config.json")) {
    fail(ErrorCode::kNotFound, "{}: {} is missing; a JAX checkpoint needs the config.json of the Hugging Face model",
         path.string(), (dir / "config.json").string());
  }
  checkHuggingFaceConfig(dir);
}

// The files of the shards that the index names.
std::vector<fs::path> shardsOf(const fs::path& index) {
  std::set<fs::path> shards;
  for (const auto& [name, file] : readWeightMap(index)) shards.insert(index.parent_path() / file);
  return {shards.begin(), shards.end()};
}

std::vector<fs::path> weightFilesOf(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  if (isThereFile(path / kFlaxModel)) return {path / kFlaxModel};
  if (isThereFile(path / kFlaxIndex)) return shardsOf(path / kFlaxIndex);
  const std::vector<fs::path> npz = npzFilesOf(path);
  if (npz.size() > 1) {
    fail(ErrorCode::kNotFound, "{}: it has several .npz files; give the path of one, such as {}", path.string(),
         npz[0].string());
  }
  return npz;
}

// Removes pages of a mapped file from the memory of this process.
void dropMapped(std::span<const std::byte> bytes) {
  static const auto kPageBytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t over = reinterpret_cast<uintptr_t>(bytes.data()) % kPageBytes;
  const size_t whole = (over + bytes.size()) / kPageBytes * kPageBytes;
  if (whole > 0) ::madvise(const_cast<std::byte*>(bytes.data()) - over, whole, MADV_DONTNEED);
}

class NpzSource {
 public:
  explicit NpzSource(const fs::path& path)
      : path_(path.string()),
        map_(std::make_shared<const MappedFile>(path)),
        file_(NpzFile::parse(map_->bytes(), path_)) {
    uint64_t packed = 0;
    for (const NpzArray& array : file_.arrays()) {
      if (array.entry.deflated) packed = checkedAdd(packed, array.header.data_bytes, path_.c_str());
    }
    // Weights are almost incompressible: a file that grows so much was made to fill the disk.
    constexpr uint64_t kMaxRatio = 16, kFree = uint64_t{16} << 20;
    if (packed > checkedAdd(checkedMul(map_->bytes().size(), kMaxRatio, path_.c_str()), kFree, path_.c_str())) {
      fail(ErrorCode::kCorrupt,
           "{}: it unpacks to {} bytes, more than {} times its size; it is refused as a decompression bomb", path_,
           packed, kMaxRatio);
    }
    unpacked_ = std::make_shared<UnnamedFile>(packed, path_);
  }

  void addTo(std::vector<JaxArray>& arrays, SourceTensors& tensors) const {
    tensors.keep(map_, map_->bytes());
    tensors.keep(unpacked_, unpacked_->bytes());
    uint64_t at = 0;  // in the file of unpacked arrays
    for (const NpzArray& array : file_.arrays()) {
      JaxArray& added = arrays.emplace_back();
      added.name = array.name;
      added.shape = array.header.shape;
      added.fortran_order = array.header.fortran_order && array.header.shape.size() > 1;
      added.file = path_;
      const auto bytes = static_cast<size_t>(array.header.data_bytes);
      TensorView values = {.dtype = array.header.dtype, .shape = {0}, .bytes = {}};
      if (array.entry.deflated) {
        values.bytes = unpacked_->bytes().subspan(at, bytes);
        at += bytes;
      } else {
        values.bytes = file_.stored(array);
      }
      values.shape[0] = values.elements();
      added.parts.push_back(std::move(values));
    }
  }

  // Unpacks compressed arrays to where addTo() expects them, and compares checksums.
  void unpack() const {
    uint64_t at = 0;
    for (const NpzArray& array : file_.arrays()) {
      file_.unpack(array, [&](std::span<const std::byte> piece) {
        if (array.entry.deflated) {
          unpacked_->write(at, piece, path_);
          at += piece.size();
        } else {
          dropMapped(piece);
        }
      });
      dropMapped(file_.packed(array));
    }
  }

 private:
  std::string path_;
  std::shared_ptr<const MappedFile> map_;
  NpzFile file_;
  std::shared_ptr<UnnamedFile> unpacked_;
};

void addFlaxFile(const fs::path& path, std::vector<JaxArray>& arrays, SourceTensors& tensors) {
  const auto map = std::make_shared<const MappedFile>(path);
  tensors.keep(map, map->bytes());
  for (FlaxArray& array : parseFlaxFile(map->bytes(), path.string())) {
    JaxArray& added = arrays.emplace_back();
    added.name = std::move(array.name);
    added.shape = std::move(array.shape);
    added.file = path.string();
    for (const std::span<const std::byte> chunk : array.chunks) {
      TensorView values = {.dtype = array.dtype, .shape = {0}, .bytes = chunk};
      values.shape[0] = values.elements();
      added.parts.push_back(std::move(values));
    }
  }
}

bool recognisesJax(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    return isThereFile(path) && (path.extension() == ".npz" || path.extension() == ".msgpack");
  }
  if (hasHuggingFaceWeights(path)) return false;
  return isThereFile(path / kFlaxModel) || isThereFile(path / kFlaxIndex) || !npzFilesOf(path).empty();
}

SourceModel openJax(const fs::path& path, const ConvertOptions& options) {
  checkJaxConfig(path);
  SourceTensors tensors;
  std::vector<JaxArray> arrays;
  std::vector<NpzSource> archives;
  for (const fs::path& file : weightFilesOf(path)) {
    if (file.extension() == ".npz") {
      archives.emplace_back(file).addTo(arrays, tensors);
    } else {
      addFlaxFile(file, arrays, tensors);
    }
  }
  keepParameters(arrays);
  const auto add = [&](std::string name, SourceTensor tensor, const std::string& file) {
    tensors.add(std::move(name), std::move(tensor), file);
  };
  if (areGemmaArrays(arrays)) {
    addGemmaArrays(arrays, add);
  } else {
    addFlaxArrays(arrays, add);
  }
  SourceModel model = modelWithHuggingFaceNames(modelDirectory(path), std::move(tensors), options);
  for (const NpzSource& archive : archives) archive.unpack();
  return model;
}

std::vector<fs::path> filesOfJax(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path.filename(), "config.json"};
  std::vector<fs::path> found = {"config.json"};
  if (isThereFile(path / kFlaxIndex)) found.emplace_back(kFlaxIndex);
  for (const fs::path& file : weightFilesOf(path)) found.push_back(file.filename());
  return found;
}
}  // namespace

SourceReader jaxReader() {
  return {.kind = "JAX checkpoint (.npz or flax msgpack)",
          .recognises = recognisesJax,
          .check = checkJaxConfig,
          .open = openJax,
          .files = filesOfJax};
}

}  // namespace chorus
