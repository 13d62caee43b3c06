// PyTorch's files (torch.save): zip archives, and the format before PyTorch 1.6. Their pickles are read as data and
// never executed (pickle.h, torch_objects.h).
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "base/partial_bytes.h"
#include "formats/tensor_file.h"

namespace chorus {

class TorchFile : public TensorFile {
 public:
  // Reads the tensors of the file's dictionary. If it has no tensors itself, reads those of its "state_dict",
  // "model_state_dict" or "module". Other values are skipped. Contiguous tensors are views into the mapped file, even
  // if they share a storage; others are copied, together into at most the file's size. Throws Error:
  //   kNotFound     the file cannot be opened
  //   kCorrupt      the file contradicts itself
  //   kUnsupported  a pickle that needs more than tensors (the message names it), a big-endian file, a TorchScript
  //                 archive, a tar file (before PyTorch 0.1.10), or a dtype that DType lacks
  static TorchFile open(const std::filesystem::path& path);
  // Parses bytes that the caller keeps alive; source names them in errors.
  static TorchFile parse(std::span<const std::byte> bytes, std::string_view source);
  // Reads only the directory and the pickle of a zip archive. The tensors have no values (TensorFile::hasValues). That
  // entries do not overlap, and that storages have headers of their own, is left to parse().
  static TorchFile parseHeader(const PartialBytes& archive, std::string_view source);
};

}  // namespace chorus
