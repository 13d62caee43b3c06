#include "server/client_message.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace chorus::server {
namespace {

TEST(ClientMessage, ShowsNoPath) {
  const std::pair<const char*, const char*> cases[] = {
      {"/srv/models/llama/config.json: 'x' is missing", "config.json: 'x' is missing"},
      {"cannot read '/a/b/c.bin', give up", "cannot read 'c.bin', give up"},
      {"adapter ../x/y and ~/z/w failed", "adapter y and w failed"},
      {"use tokens/s or 1/2, and/or both", "use tokens/s or 1/2, and/or both"},
      {"see /v: a / b", "see v: a / b"},
      {"no path here. Not 'one', `two` or (three)", "no path here. Not 'one', `two` or (three)"},
      {"file:///srv/secret/a.json: bad", "a.json: bad"},
      {"file://host/srv/secret/a.json", "a.json"},
      {"open(\"/srv/my secret/models/a b.json\") failed", "open(\"a b.json\") failed"},
      {"cannot map '/srv/my secret/x.bin': denied", "cannot map 'x.bin': denied"},
      {"secret/lora/x/adapter_config.json: 'r' is missing", "adapter_config.json: 'r' is missing"},
      {"in secret/lora/x", "in x"},
      {"C:\\srv\\secret\\a.json: bad", "a.json: bad"},
      {"\\\\host\\secret\\a.json", "a.json"},
      {"secret\\a.json is bad", "a.json is bad"},
      {"srv%2Fsecret%2fa.json is bad", "a.json is bad"},
      {"/srv/my secret models/a.json: bad", "a.json: bad"},
      {"/srv/secret/: not found", "secret: not found"},
      {"path=/srv/secret/a.json;", "path=a.json;"},
      {"</srv/secret/a.json>", "<a.json>"},
      {"read /srv/secret/a.json.", "read a.json."},
      {"a.safetensors (/srv/secret/a.safetensors, 5 bytes)", "a.safetensors (a.safetensors, 5 bytes)"},
      {"x:/srv/secret/a", "a"},
      {"/srv/secret,lora(1)[x]/a.json: bad", "a.json: bad"},
      {"(/srv/secret;{x}/a.json)", "(a.json)"},
      {"/srv/secret/a,/srv/secret/b", "b"},
      {"'~/secret/a' and './secret/b'", "'a' and 'b'"},
  };
  for (const auto& [text, shown] : cases) EXPECT_EQ(clientMessage(text), shown) << text;
}

TEST(ClientMessage, ShowsNoServerPathWhateverCharactersItHas) {
  const std::vector<std::string> roots = {"/srv/secret (old)",     "/srv/my secret, old/lora/", "/srv/a,b c",
                                          "/home/o'neil/lora",     "/srv/bob's models",         "/srv/\"secret\"",
                                          "/srv/bob's models/deep"};
  setServerPaths(roots);
  const std::pair<const char*, const char*> cases[] = {
      {"/srv/secret (old)/lora/x.json: bad", "x.json: bad"},
      {"/srv/my secret, old/lora/x.json: bad", "x.json: bad"},
      {"in '/srv/a,b c/d/x.json' and /srv/a,b c/y", "in 'x.json' and y"},
      {"/home/o'neil/lora/a/tokenizer.json: bad", "tokenizer.json: bad"},
      {"/srv/bob's models/adapters/x/tokenizer.json: bad regex", "tokenizer.json: bad regex"},
      {"/srv/bob's models/deep/x.json: bad", "x.json: bad"},
      {"/srv/\"secret\"/a.json: bad", "a.json: bad"},
      {"nothing in /srv/bob's models.", "nothing in bob's models."},
      {"/srv/bob's models: not found", "bob's models: not found"},
      {"/srv/bob's models/: not found", "bob's models: not found"},
      {"/srv/bob's modelsx/a.json", "bob's a.json"},
  };
  for (const auto& [text, shown] : cases) EXPECT_EQ(clientMessage(text), shown) << text;
  setServerPaths({});
}

TEST(ClientMessage, KnowsServerPathsInEveryForm) {
  namespace fs = std::filesystem;
  std::string pattern = (fs::temp_directory_path() / "chorus_paths.XXXXXX").string();
  const fs::path root = fs::canonical(mkdtemp(pattern.data()));
  const fs::path real = root / "the \"real\" one", link = root / "a 'link'";
  fs::create_directory(real);
  fs::create_directory_symlink(real, link);
  setServerPaths({link.string() + "/../" + link.filename().string()});
  EXPECT_EQ(clientMessage(link.string() + "/x.json: bad"), "x.json: bad");
  EXPECT_EQ(clientMessage(real.string() + "/x.json: bad"), "x.json: bad");
  setServerPaths({});
  fs::remove_all(root);
}

}  // namespace
}  // namespace chorus::server
