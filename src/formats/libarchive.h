// Owner of libarchive's reader.
#pragma once

#include <archive.h>

#include <memory>

namespace chorus {

struct FreeArchive {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using ArchiveReader = std::unique_ptr<archive, FreeArchive>;

}  // namespace chorus
