// Reads a file that torch.save wrote: the pickled object, read as data, and the bytes of its tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/partial_bytes.h"
#include "formats/pickle.h"
#include "formats/tensor_file.h"
#include "formats/torch_objects.h"

namespace chorus {

struct TorchContents {
  TorchObjects objects;
  Pickle pickle;
  std::vector<std::span<const std::byte>> storages;  // their bytes, indexed like objects.storages()
};

// Whether a file that begins with these bytes is a zip archive, as torch.save writes since PyTorch 1.6.
bool isTorchArchive(std::span<const std::byte> first);
// Whether it may be a file of PyTorch 1.5 or older.
bool isTorchPickle(std::span<const std::byte> first);

// Reads a whole file of either format. The caller keeps the bytes alive; source names them in errors. Throws the Errors
// of TorchFile::open.
TorchContents readTorchContents(std::span<const std::byte> bytes, std::string_view source,
                                OtherClasses others = OtherClasses::kRefused);
// Reads only the pickles and the directory of a zip archive. `zeros`, memory of the file's size, stands for the bytes
// of every storage.
TorchContents readTorchHeader(const PartialBytes& file, std::string_view source, std::span<const std::byte> zeros);

// The items of a dictionary whose keys are texts, ordered by the first occurrence of each key; the last value of a key
// counts. The keys are views of the pickle.
std::vector<std::pair<std::string_view, PickleValue>> namedItems(const PickleHeap& heap, const PickleValue& dictionary);

// Values of the tensors of a file. Contiguous tensors are views of the file; the elements of others are copied.
class TorchViews {
 public:
  // file_bytes: limit on all copies together. zeros: see readTorchHeader; empty if the values were read.
  TorchViews(uint64_t file_bytes, std::span<const std::byte> zeros, std::string_view source)
      : file_bytes_(file_bytes), zeros_(zeros), source_(source) {}

  // name: of the tensor, for errors. Throws Error(kUnsupported) if the copies exceed the limit.
  TensorView view(const TorchContents& contents, const TorchTensor& tensor, std::string_view name);
  // The memory of the copies, which must outlive the views.
  std::shared_ptr<const void> copies() const { return copies_; }

 private:
  using Copies = std::vector<std::unique_ptr<std::byte[]>>;
  uint64_t file_bytes_;
  std::span<const std::byte> zeros_;
  std::string_view source_;
  uint64_t copied_ = 0;
  std::shared_ptr<Copies> copies_ = std::make_shared<Copies>();
};

}  // namespace chorus
