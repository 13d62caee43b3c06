// The normal forms of Unicode, NFC to NFKD, over texts of any length.
#pragma once

#include "text/tokenizer/encode_work.h"

namespace chorus {

struct UnicodeForm {
  bool compatibility = false;  // NFKC, NFKD
  bool compose = false;        // NFC, NFKC
};

// Appends the normal form of text. Time grows with the text, whatever marks it stacks up.
void appendNormalForm(Utf8View text, const UnicodeForm& form, EncodeWork& work, ScratchText& out);

}  // namespace chorus
