#include "server/http/client.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "server/http/client_address.h"
#include "server/http/cors.h"
#include "server/http/read_pace.h"

namespace chorus::server {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(ClientAddress, NamesOfAddresses) {
  EXPECT_EQ(clientOfAddress("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(clientOfAddress("::ffff:192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(clientOfAddress("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(clientOfAddress("2001:db8:1:2::9"), "2001:db8:1:2::/64");
  EXPECT_EQ(clientOfAddress("fe80::1%eth0"), "fe80::/64");
  for (const char* text : {"", "x", "1.2.3", "1.2.3.4.5", "2001:db8", "unknown"})
    EXPECT_EQ(clientOfAddress(text), "") << text;
}

TEST(ClientAddress, OnlyTrustedProxiesNameTheClient) {
  const TrustedProxies proxies({"10.0.0.1", "2001:db8::1"});
  EXPECT_EQ(proxies.clientOf("10.0.0.1", "203.0.113.5"), "203.0.113.5");
  EXPECT_EQ(proxies.clientOf("::ffff:10.0.0.1", "1.1.1.1, 203.0.113.5"), "203.0.113.5")
      << "what a client wrote is before it";
  EXPECT_EQ(proxies.clientOf("2001:db8:0::1", "\t[2001:db8:7::5]:4711 "), "2001:db8:7::/64");
  EXPECT_EQ(proxies.clientOf("10.0.0.1", "203.0.113.5:80"), "203.0.113.5");
  EXPECT_EQ(proxies.clientOf("10.0.0.1", "203.0.113.5, unknown"), "10.0.0.1");
  EXPECT_EQ(proxies.clientOf("10.0.0.1", ""), "10.0.0.1");
  EXPECT_EQ(proxies.clientOf("10.0.0.2", "203.0.113.5"), "10.0.0.2");
  EXPECT_TRUE(proxies.trusts("10.0.0.1"));
  EXPECT_FALSE(TrustedProxies().trusts("10.0.0.1"));
  EXPECT_THROW(TrustedProxies({"proxy.example"}), Error);
}

TEST(Client, IsKnownAsLongAsItIsHeld) {
  const auto registry = std::make_shared<ClientRegistry>(ClientMemoryLimits{});
  auto a = registry->find("a");
  EXPECT_EQ(registry->find("a"), a);
  EXPECT_NE(registry->find("b")->id(), a->id());
  EXPECT_EQ(registry->size(), 1u);
  const uint64_t id = a->id();
  a.reset();
  EXPECT_EQ(registry->size(), 0u);
  EXPECT_EQ(registry->find("a")->id(), id);
}

TEST(Client, SharesOfMemory) {
  const auto registry = std::make_shared<ClientRegistry>(ClientMemoryLimits{.server = 16 * kMiB, .client = 8 * kMiB});
  std::vector<ClientCharge> charges;
  for (const char* name : {"a", "b"}) charges.emplace_back(registry->find(name));
  EXPECT_EQ(charges[0].resize(6 * kMiB + 1), MemoryAnswer::kClientFull);
  EXPECT_EQ(charges[0].bytes(), 0u);
  EXPECT_EQ(charges[0].resize(6 * kMiB), MemoryAnswer::kGranted);
  EXPECT_EQ(charges[1].resize(6 * kMiB), MemoryAnswer::kGranted);
  EXPECT_EQ(registry->used(), 12 * kMiB);
  ClientCharge third(registry->find("c"));
  EXPECT_EQ(third.resize(kMiB), MemoryAnswer::kServerFull);
  EXPECT_EQ(third.resize(ClientCharge::kSmall), MemoryAnswer::kGranted) << "small things have room of their own";
  ClientCharge small(charges[0].client());
  EXPECT_EQ(small.resize(1000), MemoryAnswer::kGranted);
  EXPECT_EQ(small.add(ClientCharge::kSmall), MemoryAnswer::kClientFull);
  EXPECT_EQ(small.bytes(), 1000u);
  charges[1].release();
  EXPECT_EQ(third.resize(kMiB), MemoryAnswer::kGranted);
  EXPECT_EQ(third.resize(10), MemoryAnswer::kGranted);
  ClientCharge moved = std::move(charges[0]);
  EXPECT_EQ(moved.bytes(), 6 * kMiB);
  EXPECT_EQ(charges[0].bytes(), 0u);
  moved = ClientCharge();
  small.release();
  third.release();
  EXPECT_EQ(registry->used(), 0u);
  EXPECT_EQ(ClientCharge().resize(SIZE_MAX), MemoryAnswer::kGranted) << "nobody's";
}

TEST(ReadPace, GrowsWithWhatIsTaken) {
  const ReadPace::TimePoint start{};
  using std::chrono::seconds;
  ReadPace pace(seconds(30), 1000);
  pace.begin(start);
  EXPECT_EQ(pace.deadline(), start + seconds(30));
  pace.took(4000);
  EXPECT_EQ(pace.deadline(), start + seconds(34));
  pace.begin(start + seconds(100));
  EXPECT_EQ(pace.deadline(), start + seconds(130));
  EXPECT_EQ(ReadPace(seconds(30), 0).deadline(), ReadPace::TimePoint::max());
}

TEST(Cors, OriginsAreRefusedUnlessNamed) {
  const CorsPolicy none;
  EXPECT_TRUE(none.allows("", "127.0.0.1:8000"));
  EXPECT_FALSE(none.allows("https://a.example", "127.0.0.1:8000"));
  EXPECT_FALSE(none.allows("null", "127.0.0.1:8000"));
  const CorsPolicy some({"https://a.example", "http://localhost:3000"});
  EXPECT_TRUE(some.allows("http://localhost:3000", "127.0.0.1:8000"));
  for (const char* other :
       {"https://a.example.evil", "http://a.example", "https://a.example:8443", "https://b.a.example", "*"}) {
    EXPECT_FALSE(some.allows(other, "127.0.0.1:8000")) << other;
  }
  EXPECT_TRUE(some.answerHeaders("").empty());
  EXPECT_EQ(some.answerHeaders("https://a.example")[0],
            std::make_pair(std::string("access-control-allow-origin"), std::string("https://a.example")));
  EXPECT_EQ(CorsPolicy({"*"}).answerHeaders("https://x.example")[0].second, "*");
  for (const char* bad : {"a.example", "https://", "https://a.example/path", "https://a b"}) {
    EXPECT_THROW(CorsPolicy({bad}), Error) << bad;
  }
}

TEST(Cors, ThePageOfThisServerIsAllowedUnderAnAddress) {
  const CorsPolicy none;
  for (const char* host :
       {"127.0.0.1:8000", "127.0.0.1", "[::1]:8000", "[2001:db8::1]", "localhost:8000", "localhost"}) {
    EXPECT_TRUE(none.allows(std::string("http://") + host, host)) << host;
    EXPECT_TRUE(none.allows(std::string("https://") + host, host)) << host;
    EXPECT_FALSE(none.allows(std::string("ftp://") + host, host)) << host;
    EXPECT_FALSE(none.allows(std::string("http://") + host + "0", host)) << host;
    EXPECT_TRUE(none.answerHeaders(std::string("http://") + host).empty()) << host;
  }
  // The owner of a name may let it lead to this server.
  for (const char* host : {"evil.example:8000", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80",
                           "127.0.0.1:80:90", "[evil.example]", "[127.0.0.1]", "[", "[]", ":", ""}) {
    EXPECT_FALSE(none.allows(std::string("http://") + host, host)) << host;
  }
}

TEST(Cors, Preflight) {
  const CorsPolicy policy({"https://a.example"});
  HttpRequest request{.method = "OPTIONS", .path = "/v1/completions"};
  EXPECT_FALSE(policy.preflight(request));
  request.headers = {{"origin", "https://a.example"},
                     {"access-control-request-method", "POST"},
                     {"access-control-request-headers", "content-type, x-stainless-os"}};
  const auto answer = policy.preflight(request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 204);
  EXPECT_EQ(answer->headers[0].second, "GET, HEAD, POST, PUT, DELETE, OPTIONS") << "the methods of all routes";
  EXPECT_EQ(answer->headers[1].second, "content-type, x-stainless-os");
  request.headers[2].second = "x\"y<";
  EXPECT_EQ(policy.preflight(request)->headers[1].first, "access-control-max-age") << "odd lists are not repeated";
}

}  // namespace
}  // namespace chorus::server
