#include "formats/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/test_paths.h"

namespace chorus {
namespace {

SentencePieceModel parse(std::string_view bytes) {
  return parseSentencePieceModel(std::as_bytes(std::span(bytes)), "m");
}

std::string errorOf(std::string_view bytes) {
  try {
    parse(bytes);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

const std::string kModel =
    readFile(test::sourceDir().string() + "/tests/fuzz/sentencepiece_model_fuzz/every_field.model", 1 << 20);

TEST(SentencePieceModelTest, ReadsEveryField) {
  const SentencePieceModel model = parse(kModel);
  ASSERT_EQ(model.pieces.size(), 6u);
  EXPECT_EQ(model.pieces[0].type, SentencePiece::Type::kUnknown);
  EXPECT_EQ(model.pieces[1].type, SentencePiece::Type::kControl);
  EXPECT_EQ(model.pieces[3].text,
            "\xE2\x96\x81"
            "a");
  EXPECT_EQ(model.pieces[3].score, -1.0f);
  EXPECT_EQ(model.pieces[4].type, SentencePiece::Type::kByte);
  EXPECT_EQ(model.pieces[5].type, SentencePiece::Type::kUserDefined);
  EXPECT_EQ(model.kind, SentencePieceModel::Kind::kBpe);
  EXPECT_TRUE(model.byte_fallback);
  EXPECT_EQ(model.unk_id, 0);
  EXPECT_EQ(model.bos_id, 1);
  EXPECT_EQ(model.eos_id, 2);
  EXPECT_EQ(model.pad_id, -1);
  EXPECT_TRUE(model.add_dummy_prefix);
  EXPECT_FALSE(model.remove_extra_whitespaces);
  EXPECT_EQ(model.precompiled_charsmap.size(), 10u);
}

// Every prefix of a model is either refused or read as a model with fewer parts; no read goes beyond its end.
TEST(SentencePieceModelTest, CutAnywhere) {
  int refused = 0;
  for (size_t size = 0; size < kModel.size(); ++size) refused += !errorOf(kModel.substr(0, size)).empty();
  EXPECT_GT(refused, static_cast<int>(kModel.size()) / 2);
}

TEST(SentencePieceModelTest, RefusesWhatContradictsItself) {
  EXPECT_EQ(errorOf(""), "m: not a sentencepiece model: it has no pieces");
  EXPECT_EQ(errorOf("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"),
            "m: not a sentencepiece model: a field reaches beyond the end");
  EXPECT_EQ(errorOf("\x0A\x02\x0A\x05"), "m: not a sentencepiece model: a field reaches beyond the end");
  EXPECT_EQ(errorOf("\x0B"), "m: not a sentencepiece model: a field has an unknown wire type");
  EXPECT_EQ(errorOf(std::string("\x0A\x03\x0A\x01"
                                "a\x12\x02\x18\x09",
                                9)),
            "m: not a sentencepiece model: an unknown model type");
  EXPECT_EQ(errorOf(std::string("\x0A\x03\x0A\x01"
                                "a\x12\x03\xC0\x02\x05",
                                10)),
            "m: not a sentencepiece model: a special token's id is beyond the pieces");
}

}  // namespace
}  // namespace chorus
