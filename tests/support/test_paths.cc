#include "support/test_paths.h"

namespace chorus::test {

std::filesystem::path sourceDir() { return CHORUS_SOURCE_DIR; }

}  // namespace chorus::test
