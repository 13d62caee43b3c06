// The parts of the page, from the files of this folder.
#pragma once

namespace chorus {

extern const char kPageHtml[];
extern const char kPageStyle[];
extern const char kPageScript[];

}  // namespace chorus
