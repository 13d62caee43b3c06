#include "base/sha256.h"

#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(Sha256Test, KnownAnswersWholeAndInPieces) {  // FIPS 180-2, appendix B.1
  Sha256 whole;
  whole.update("abc");
  const std::string expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(whole.hex(), expected);
  Sha256 pieces;
  pieces.update("a");
  pieces.update("bc");
  EXPECT_EQ(pieces.hex(), expected);
}

}  // namespace
}  // namespace chorus
