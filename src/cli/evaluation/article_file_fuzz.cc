// Any bytes as a data file of `chorus summarize`, in both formats, are refused with an Error or give articles.
// parses: src/cli/evaluation/article_file.cc
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/evaluation/article_file.h"
#include "fuzz/fuzz_target.h"

namespace {

template <typename Parse>
void articlesOrRefusal(Parse parse, std::string_view text) {
  try {
    const auto articles = parse(text, chorus::ArticleColumns{"article", "highlights"}, "fuzz");
    if (articles.empty()) std::abort();
    size_t bytes = 0;
    for (const chorus::Article& article : articles) {
      if (!chorus::isUtf8(article.text) || !chorus::isUtf8(article.reference)) std::abort();
      bytes += article.text.size() + article.reference.size();
    }
    if (bytes > text.size()) std::abort();
  } catch (const chorus::Error&) {
  }
}

}  // namespace

// An empty input takes under 20 us; the rest allows for two formatted and thrown refusals and for other programs' use
// of the caches. The memory is that of the messages, of a JSON parser and
// of a record of as many empty fields as may be.
const chorus::test::FixedCost chorus::test::kFixedCost{.microseconds = 500, .bytes = 128 << 10};

void chorus::test::fuzzOne(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  articlesOrRefusal(chorus::parseArticlesCsv, text);
  articlesOrRefusal(chorus::parseArticlesJson, text);
}
