// The Unicode normal forms NFC, NFD, NFKC and NFKD, for texts of any length.
#pragma once

#include "text/tokenizer/encode_work.h"

namespace chorus {

struct UnicodeForm {
  bool compatibility = false;  // NFKC, NFKD
  bool compose = false;        // NFC, NFKC
};

// Appends the normal form of text. Time is nearly proportional to the text, even for long runs of combining marks.
void appendNormalForm(Utf8View text, const UnicodeForm& form, EncodeWork& work, ScratchText& out);

}  // namespace chorus
