#include "server/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "server/http/http_wire.h"
#include "server/testing/routes_fixture.h"

namespace chorus::server {
namespace {

using testing::HasSubstr;
using testing::Not;

class PageTest : public RoutesTest {
 protected:
  static std::string headerOf(const HttpResponse& response, const std::string& name) {
    for (const auto& [known, value] : response.headers)
      if (known == name) return value;
    return "";
  }
};

TEST_F(PageTest, IsServedAtTheRootAlsoWhileTheModelLoads) {
  Routes fresh;
  const auto exchange = std::make_shared<FakeExchange>();
  fresh.handle({.method = "GET", .path = "/", .headers = {}, .body = {}}, exchange);
  const HttpResponse response = exchange->wait();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(response.body, testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(response.body, HasSubstr("v1/chat/completions"));
  EXPECT_THAT(response.body, HasSubstr("prefers-color-scheme"));
  EXPECT_EQ(answer("POST", "/", "{}").status, 405);
  EXPECT_EQ(answer("GET", "/index.html").status, 404);
}

TEST_F(PageTest, IsNotServedWhenItIsOff) {
  Routes without(false);
  const auto exchange = std::make_shared<FakeExchange>();
  without.handle({.method = "GET", .path = "/", .headers = {}, .body = {}}, exchange);
  EXPECT_EQ(exchange->wait().status, 404);
}

TEST_F(PageTest, ACopyOfTheClientIsConfirmedByItsTag) {
  const std::string tag = headerOf(answer("GET", "/"), "etag");
  EXPECT_TRUE(std::regex_match(tag, std::regex("\"[0-9a-f]{32}\""))) << tag;
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    const HttpResponse same = answer("GET", "/", "", {{"if-none-match", known}});
    EXPECT_EQ(same.status, 304) << known;
    EXPECT_EQ(same.body, "");
    EXPECT_EQ(headerOf(same, "etag"), tag);
    EXPECT_THAT(headerOf(same, "content-security-policy"), HasSubstr("script-src"));
  }
  EXPECT_EQ(answer("GET", "/", "", {{"if-none-match", "\"other\""}}).status, 200);
  EXPECT_EQ(headerOf(answer("GET", "/"), "cache-control"), "no-cache");
  EXPECT_THAT(responseHead(304, "", 0, true, "r", {}), Not(HasSubstr("content-length")));
}

// The policy lets the browser run the page's own script and style and nothing else.
TEST_F(PageTest, ThePolicyAllowsOnlyTheInlineScriptAndStyle) {
  const HttpResponse response = answer("GET", "/");
  const std::string policy = headerOf(response, "content-security-policy");
  EXPECT_TRUE(std::regex_match(
      policy, std::regex("default-src 'none'; script-src 'sha256-[A-Za-z0-9+/]{43}='; style-src "
                         "'sha256-[A-Za-z0-9+/]{43}='; connect-src 'self'; img-src data:; base-uri 'none'; form-action "
                         "'none'; frame-ancestors 'none'")))
      << policy;
  EXPECT_EQ(headerOf(response, "x-content-type-options"), "nosniff");
  EXPECT_EQ(headerOf(response, "referrer-policy"), "no-referrer");
  const auto count = [&](const std::string& text) {
    size_t found = 0;
    for (size_t at = response.body.find(text); at != std::string::npos; at = response.body.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<script"), 1u);
  EXPECT_EQ(count("<style"), 1u);
}

TEST_F(PageTest, RefersToNothingOutsideAndMakesNoHtmlFromText) {
  const std::string html = answer("GET", "/").body;
  const std::regex outside(
      R"((src|href|action|srcset|poster)\s*=\s*["']?(?!["'#]|data:)|url\(|@import|https?://|//cdn)", std::regex::icase);
  std::smatch found;
  EXPECT_FALSE(std::regex_search(html, found, outside)) << found.str();
  const std::regex handlers(R"(\son[a-z]+\s*=\s*["'])", std::regex::icase);
  EXPECT_FALSE(std::regex_search(html, found, handlers)) << found.str();
  for (const char* maker : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
                            "localStorage", "sessionStorage", "document.cookie"}) {
    EXPECT_THAT(html, Not(HasSubstr(maker)));
  }
}

}  // namespace
}  // namespace chorus::server
