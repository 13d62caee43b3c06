#include "server/http/http_wire.h"

#include <gtest/gtest.h>

#include "server/errors.h"

namespace chorus::server {
namespace {

TEST(HttpWire, HeadStatesLengthOrChunks) {
  const std::string whole = responseHead(200, "application/json", 5, true, "req-1", {{"allow", "GET"}});
  EXPECT_TRUE(whole.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(whole.find("content-length: 5\r\n"), std::string::npos);
  EXPECT_NE(whole.find("x-request-id: req-1\r\n"), std::string::npos);
  EXPECT_NE(whole.find("allow: GET\r\n"), std::string::npos);
  EXPECT_TRUE(whole.ends_with("connection: keep-alive\r\n\r\n"));
  const std::string chunked = responseHead(200, "text/event-stream", kChunkedLength, false, "", {});
  EXPECT_NE(chunked.find("transfer-encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(chunked.find("content-length"), std::string::npos);
  EXPECT_TRUE(chunked.ends_with("connection: close\r\n\r\n"));
  EXPECT_EQ(responseHead(200, "", kLengthUntilClose, false, "", {}).find("transfer-encoding"), std::string::npos);
}

TEST(HttpWire, ChunksAndEvents) {
  std::string out;
  appendChunk(out, std::string(26, 'x'));
  EXPECT_EQ(out, "1a\r\n" + std::string(26, 'x') + "\r\n");
  EXPECT_EQ(sseEvent("[DONE]"), "data: [DONE]\n\n");
  EXPECT_EQ(sseEvent("a\nb"), "data: a\ndata: b\n\n");
  EXPECT_EQ(sseEvent(""), "data: \n\n");
}

TEST(HttpWire, RequestIds) {
  EXPECT_TRUE(isWellFormedRequestId("abc-1.2_Z"));
  EXPECT_FALSE(isWellFormedRequestId(""));
  EXPECT_FALSE(isWellFormedRequestId("a\r\nset-cookie: x"));
  EXPECT_FALSE(isWellFormedRequestId(std::string(129, 'a')));
  const std::string id = randomId("cmpl-");
  EXPECT_EQ(id.size(), 5u + 32u);
  EXPECT_NE(id, randomId("cmpl-"));
}

TEST(ApiErrors, BodyHasFourMembers) {
  EXPECT_EQ(ApiError::modelNotFound("x").body(),
            R"({"error":{"message":"The model `x` does not exist or you do not have access to it.",)"
            R"("type":"invalid_request_error","param":"model","code":"model_not_found"}})");
  EXPECT_EQ(ApiError::modelNotFound("x").status(), 404);
  EXPECT_EQ(ApiError::invalid("bad").body(),
            R"({"error":{"message":"bad","type":"invalid_request_error","param":null,"code":null}})");
  const auto response = ApiError::overloaded("full").response();
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.headers.front().first, "retry-after-ms");
}

}  // namespace
}  // namespace chorus::server
