// The named tensors of a model source, whatever its files are.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/source_tensor.h"

namespace chorus {

// Copies share the files. Tensors are read where they are stored, so a source whose files are compressed unpacks them
// into a temporary file and maps that.
class SourceTensors {
 public:
  // Shares ownership of `owner`, the memory that tensors point into. map: the bytes of a mapped file whose pages may be
  // dropped after reading (SourceTensor::dropPages); empty for other memory. The tensors of a map are added after it.
  void keep(std::shared_ptr<const void> owner, std::span<const std::byte> map = {});
  // file: where the tensor was found, for error messages. Throws Error(kCorrupt) if there is a tensor of this name.
  void add(std::string name, SourceTensor tensor, std::string file);
  // Adds all tensors of a mapped file, as openTensorFile returns it.
  void addFile(const TensorFile& file);

  // The names of all tensors, sorted.
  std::vector<std::string> names() const;
  // nullptr when there is no such tensor. Valid until this object is changed or destroyed.
  const SourceTensor* find(std::string_view name) const;
  // The file that contains the tensor; the name itself when there is no such tensor.
  std::string fileOf(std::string_view name) const;

 private:
  struct Entry {
    SourceTensor tensor;
    std::string file;
  };
  std::map<std::string, Entry, std::less<>> tensors_;  // not a hash table: hostile names could collide
  std::vector<std::shared_ptr<const void>> owners_;
  std::map<const std::byte*, std::span<const std::byte>> maps_;  // by first byte
};

}  // namespace chorus
