// PyTorch's files (torch.save): today's zip archives and the format before PyTorch 1.6. Their pickles are read as data
// (pickle.h, torch_objects.h), never executed.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "formats/tensor_file.h"

namespace chorus {

class TorchFile : public TensorFile {
 public:
  // The tensors of a dictionary of tensors, or of its "state_dict", "model_state_dict" or "module" when it holds none
  // itself; other values are passed over. Contiguous tensors stay in the map, also where they share a storage; the
  // others are copied, all together into at most the file's size. Throws Error(kNotFound), kCorrupt for anything that
  // contradicts itself, kUnsupported with what a pickle asks for beyond tensors, for big-endian files, TorchScript
  // archives, tar files (before PyTorch 0.1.10) and types outside DType.
  static TorchFile open(const std::filesystem::path& path);
  // Parses bytes that the caller keeps alive; source names them in errors.
  static TorchFile parse(std::span<const std::byte> bytes, std::string_view source);
};

}  // namespace chorus
