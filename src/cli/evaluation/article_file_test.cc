#include "cli/evaluation/article_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/testing/error_of.h"
#include "cli/evaluation/embedded_files.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr ArticleColumns kColumns = {"article", "highlights"};

std::string csvRefusal(std::string_view text) {
  return errorOf([&] { parseArticlesCsv(text, kColumns, "data.csv"); });
}
std::string jsonRefusal(std::string_view text) {
  return errorOf([&] { parseArticlesJson(text, kColumns, "data.json"); });
}

TEST(ArticleFileTest, ReadsCsvWithQuotesAndOtherColumns) {
  const Articles articles =
      parseArticlesCsv("\xEF\xBB\xBFid,highlights,article\r\n1,\"He said \"\"no\"\",\r\ntwice\",A\r\n\r\n2,,\"B\"",
                       kColumns, "data.csv");
  ASSERT_EQ(articles.size(), 2U);
  EXPECT_EQ(articles[0].text, "A");
  EXPECT_EQ(articles[0].reference, "He said \"no\",\r\ntwice");
  EXPECT_EQ(articles[1].text, "B");
  EXPECT_EQ(articles[1].reference, "");
}

TEST(ArticleFileTest, NamesTheRecordOfADamagedCsv) {
  EXPECT_EQ(csvRefusal("article,highlights\nA,B\n\"C,D\n"), "data.csv: record 3 has a quote without an end");
  EXPECT_EQ(csvRefusal("article,highlights\n\"A\"x,B\n"), "data.csv: record 2 has text after a closing quote");
  EXPECT_EQ(csvRefusal("article,highlights\nA\n"), "data.csv: record 2 has 1 fields, the first has 2");
  EXPECT_EQ(csvRefusal("article,summary\nA,B\n"), "data.csv: the first record has no column 'highlights'");
  EXPECT_EQ(csvRefusal("article,highlights\n\xff,B\n"), "data.csv: record 2 is not UTF-8");
  EXPECT_EQ(csvRefusal("article,highlights\n"), "data.csv: it has no record");
  EXPECT_THAT(csvRefusal(""), HasSubstr("no column 'article'"));
  EXPECT_THAT(csvRefusal("article" + std::string(1000, ',')), HasSubstr("record 1 has more than 1000 fields"));
}

TEST(ArticleFileTest, ReadsJsonLinesAndArrays) {
  for (const char* text :
       {"{\"article\": \"A\", \"highlights\": \"B\"}\n\n{\"highlights\": \"D\", \"article\": \"C\"}",
        " [{\"article\": \"A\", \"highlights\": \"B\"}, {\"highlights\": \"D\", \"article\": \"C\"}]"}) {
    const Articles articles = parseArticlesJson(text, kColumns, "data.json");
    ASSERT_EQ(articles.size(), 2U);
    EXPECT_EQ(articles[0].text + articles[0].reference + articles[1].text + articles[1].reference, "ABCD");
  }
  EXPECT_EQ(parseArticlesJson(R"({"text": "A"})", {"text", "text"}, "data.json")[0].reference, "A");
}

TEST(ArticleFileTest, NamesTheRecordOfADamagedJson) {
  EXPECT_EQ(jsonRefusal("[1]"), "data.json: record 1 is not a JSON object");
  EXPECT_EQ(jsonRefusal(R"({"article": 1, "highlights": "B"})"), "data.json: 'article' of record 1 is not a text");
  EXPECT_EQ(jsonRefusal("{\"article\": \"A\", \"highlights\": \"\"}\n{\"article\": \"A\"}"),
            "data.json: record 2 has no 'highlights'");
  EXPECT_THAT(jsonRefusal("{\"article\": \"A\", \"highlights\": \"B\"}\n{\"article"),
              HasSubstr("data.json: record 2: "));
  EXPECT_EQ(jsonRefusal("[]"), "data.json: it has no record");
  EXPECT_EQ(jsonRefusal("\n \n"), "data.json: it has no record");
}

TEST(ArticleFileTest, FindsTheFileOfADataSet) {
  const fs::path dir = fs::path(testing::TempDir()) / ("article_file_test_" + std::to_string(::getpid()));
  fs::create_directories(dir / "ccdv/cnn_dailymail");
  const auto found = [&] { return findArticleFile(dir, "ccdv/cnn_dailymail", "test"); };
  EXPECT_THAT(errorOf(found), testing::AllOf(HasSubstr(dir.string()), HasSubstr("test.jsonl"), HasSubstr("Parquet")));
  std::ofstream(dir / "ccdv/cnn_dailymail/test.csv") << "article,highlights\nA,B\n";
  EXPECT_EQ(found(), dir / "ccdv/cnn_dailymail/test.csv");
  EXPECT_EQ(readArticles(found(), kColumns)[0].reference, "B");
  std::ofstream(dir / "test.jsonl") << "{}";
  EXPECT_EQ(found(), dir / "test.jsonl");
  EXPECT_EQ(findArticleFile(dir / "other.json", "", "test"), dir / "other.json") << "a file is taken by its name";
  fs::remove_all(dir);
}

TEST(ArticleFileTest, TheBuiltInArticlesAreWhole) {
  const Articles articles = parseArticlesJson(kDefaultArticles, kColumns, "built-in");
  EXPECT_EQ(articles.size(), 8U);
  for (const Article& article : articles) {
    EXPECT_GT(article.text.size(), 500U);
    EXPECT_THAT(article.reference, HasSubstr(" .\n"));
  }
}

}  // namespace
}  // namespace chorus
