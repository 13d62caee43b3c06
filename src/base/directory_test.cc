#include "base/directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/testing/error_of.h"

namespace chorus {
namespace {

namespace fs = std::filesystem;

// Tests open root/tenant. root/other belongs to another tenant, and outside/ lies outside root.
class DirectoryTest : public testing::Test {
 protected:
  DirectoryTest() {
    std::string name = testing::TempDir() + "directory.XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary directory";
    top_ = name;
    fs::create_directories(top_ / "root/tenant/sub/deep");
    fs::create_directories(top_ / "root/other");
    fs::create_directories(top_ / "outside");
    write("root/tenant/file", "mine");
    write("root/tenant/sub/file", "mine");
    write("root/tenant/sub/deep/file", "mine");
    write("root/other/file", "theirs");
    write("outside/secret", "secret");
  }
  ~DirectoryTest() override { fs::remove_all(top_); }

  void write(const std::string& name, const std::string& text) { std::ofstream(top_ / name) << text; }
  void link(const std::string& target, const std::string& name) {
    fs::create_symlink(target, top_ / "root/tenant" / name);
  }
  std::shared_ptr<const Directory> tenant(Links links) {
    return Directory::open(top_ / "root", Links::kNone)->openDirectory("tenant", links);
  }
  static std::string contents(const Descriptor& fd) {
    char text[64];
    const ssize_t n = ::read(fd.get(), text, sizeof text);
    return n < 0 ? std::strerror(errno) : std::string(text, static_cast<size_t>(n));
  }

  fs::path top_;
};

TEST_F(DirectoryTest, WithOnlyHidesAllOtherEntries) {
  write("root/tenant/other", "hidden");
  const auto only = tenant(Links::kNone)->withOnly("file");
  EXPECT_EQ(only->names(10).names, std::vector<std::string>{"file"});
  EXPECT_TRUE(only->directoryNames(10).names.empty());
  EXPECT_EQ(only->readFile("file", 10), "mine");
  for (const std::string name : {"other", "sub", "sub/file", "./file", "../other/file", "."}) {
    EXPECT_FALSE(only->hasName(name)) << name;
    EXPECT_FALSE(only->isDirectory(name)) << name;
    EXPECT_FALSE(only->stampOf(name)) << name;
    EXPECT_NE(errorOf([&] { only->openFile(name); }), "") << name;
  }
  fs::remove(top_ / "root/tenant/file");
  EXPECT_TRUE(only->names(10).names.empty());
}

TEST_F(DirectoryTest, LinksOfADirectoryWithinAnotherMayLeadToWhatLiesThere) {
  link("../file", "sub/up");
  link("../../other/file", "sub/out");
  link("../up", "sub/deep/chain");
  const auto sub = tenant(Links::kInside)->openWithin("sub");
  EXPECT_EQ(contents(sub->openFile("up")), "mine");
  EXPECT_EQ(contents(sub->openFile("file")), "mine");
  EXPECT_TRUE(sub->stampOf("up") && sub->hasName("up") && !sub->hasName("upwards"));
  EXPECT_EQ(sub->names(10).names, (std::vector<std::string>{"deep", "file", "out", "up"}));
  EXPECT_EQ(contents(sub->openDirectory("deep", Links::kInside)->openFile("chain")), "mine");
  EXPECT_THROW(sub->openFile("out"), Error);
  EXPECT_THROW(sub->stampOf("out"), Error);
  EXPECT_THROW(tenant(Links::kNone)->openWithin("sub")->openFile("up"), Error);
  EXPECT_THROW(tenant(Links::kInside)->openDirectory("sub", Links::kInside)->openFile("up"), Error);
  EXPECT_EQ(contents(tenant(Links::kFollow)->openWithin("sub")->openFile("out")), "theirs");
}

struct Case {
  std::string name;
  std::string inside;  // contents that Links::kInside reads, or the name of the errno
  std::string none;    // likewise with Links::kNone
};

TEST_F(DirectoryTest, LinksLeadNowhereElse) {
  link("file", "to_file");
  link("sub/deep/file", "to_deep");
  link("sub/../file", "up_and_down");
  link("sub/", "to_dir");
  link("../tenant/file", "out_and_back");
  link("../other/file", "to_other");
  link("../../outside/secret", "out");
  link((top_ / "outside/secret").string(), "absolute_out");
  link((top_ / "root/tenant/file").string(), "absolute_in");
  link("../other", "dir_of_other");
  link("to_file", "chain");
  link("out", "chain_out");
  link("loop", "loop");
  link("pong", "ping");
  link("ping", "pong");
  link("nowhere", "dangling");
  link("/proc/self/root", "proc_root");
  link("/proc/self/cwd", "proc_cwd");
  link("file", "sub/beside");  // leads to sub/file
  link("../../../outside/secret", "sub/out");
  link("..", "sub/parent");
  const Case cases[] = {
      {"file", "mine", "mine"},
      {"./sub//deep/file", "mine", "mine"},
      {"sub/../file", "mine", "mine"},
      {"to_file", "mine", "ELOOP"},
      {"to_deep", "mine", "ELOOP"},
      {"up_and_down", "mine", "ELOOP"},
      {"to_dir/file", "mine", "ELOOP"},
      {"to_dir/deep/../file", "mine", "ELOOP"},
      {"chain", "mine", "ELOOP"},
      {"sub/beside", "mine", "ELOOP"},
      {"sub/parent/file", "mine", "ELOOP"},
      {"sub/parent/../file", "EXDEV", "ELOOP"},
      {"out_and_back", "EXDEV", "ELOOP"},
      {"to_other", "EXDEV", "ELOOP"},
      {"out", "EXDEV", "ELOOP"},
      {"absolute_out", "EXDEV", "ELOOP"},
      {"absolute_in", "EXDEV", "ELOOP"},
      {"dir_of_other/file", "EXDEV", "ELOOP"},
      {"chain_out", "EXDEV", "ELOOP"},
      {"sub/out", "EXDEV", "ELOOP"},
      {"proc_root/etc/passwd", "EXDEV", "ELOOP"},
      {"proc_cwd/x", "EXDEV", "ELOOP"},
      {"loop", "ELOOP", "ELOOP"},
      {"ping", "ELOOP", "ELOOP"},
      {"dangling", "ENOENT", "ELOOP"},
      {"..", "EXDEV", "EXDEV"},
      {"../other/file", "EXDEV", "EXDEV"},
      {"sub/../../other/file", "EXDEV", "EXDEV"},
      {(top_ / "outside/secret").string(), "EXDEV", "EXDEV"},
      {"", "ENOENT", "ENOENT"},
      {"file/", "ENOTDIR", "ENOTDIR"},
      {"to_file/", "ENOTDIR", "ELOOP"},
      {"file/more", "ENOTDIR", "ENOTDIR"},
      {"nothing", "ENOENT", "ENOENT"},
      {"nothing/../file", "ENOENT", "ENOENT"},
      {std::string(5000, 'x'), "ENAMETOOLONG", "ENAMETOOLONG"},
      {std::string(256, 'x'), "ENAMETOOLONG", "ENAMETOOLONG"},
  };
  const Descriptor dir(::open((top_ / "root/tenant").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto result = [&](auto* open, const std::string& name, Links links) {
    const Descriptor fd(open(dir.get(), name, O_RDONLY | O_NONBLOCK, links));
    return fd ? contents(fd) : std::string(::strerrorname_np(errno));
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name.substr(0, 40));
    EXPECT_EQ(result(openBeneath, c.name, Links::kInside), c.inside);
    EXPECT_EQ(result(openBeneathByComponents, c.name, Links::kInside), c.inside) << "by components";
    EXPECT_EQ(result(openBeneath, c.name, Links::kNone), c.none);
    EXPECT_EQ(result(openBeneathByComponents, c.name, Links::kNone), c.none) << "by components";
  }
  EXPECT_EQ(result(openBeneath, "out", Links::kFollow), "secret");
  EXPECT_EQ(result(openBeneath, "absolute_out", Links::kFollow), "secret");
}

// Magic links of /proc refer to kernel objects, not to paths. They are refused even when the root contains them.
TEST_F(DirectoryTest, MagicLinksAreRefused) {
  const Descriptor dir(::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const auto open : {openBeneath, openBeneathByComponents}) {
    for (const char* name : {"root/etc/hostname", "cwd", "exe", "fd/0"}) {
      const Descriptor fd(open(dir.get(), name, O_RDONLY, Links::kInside));
      EXPECT_FALSE(fd) << name;
      EXPECT_EQ(errno, ELOOP) << name;
    }
  }
}

TEST_F(DirectoryTest, DirectoriesAreFoundBothWays) {
  link("sub", "to_dir");
  const Descriptor dir(::open((top_ / "root/tenant").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const auto open : {openBeneath, openBeneathByComponents}) {
    for (const char* name : {"sub", "sub/", "to_dir", "to_dir/", ".", "sub/.."}) {
      for (const int flags : {O_RDONLY | O_DIRECTORY, O_PATH | O_DIRECTORY, O_PATH}) {
        EXPECT_TRUE(Descriptor(open(dir.get(), name, flags, Links::kInside))) << name << " " << flags;
      }
    }
    EXPECT_FALSE(Descriptor(open(dir.get(), "file", O_RDONLY | O_DIRECTORY, Links::kInside)));
    EXPECT_EQ(errno, ENOTDIR);
  }
  EXPECT_TRUE(tenant(Links::kInside)->isDirectory("to_dir"));
  EXPECT_FALSE(tenant(Links::kInside)->isDirectory("file"));
}

TEST_F(DirectoryTest, EachRefusalIsOneLine) {
  link("../other/file", "to_other");
  ASSERT_EQ(::mkfifo((top_ / "root/tenant/fifo").c_str(), 0600), 0);
  const auto dir = tenant(Links::kInside);
  const auto refusal = [&](const char* name) { return errorOf([&] { dir->openFile(name); }); };
  const auto path = [&](const char* name) { return (top_ / "root/tenant" / name).string(); };
  EXPECT_EQ(refusal("to_other"), path("to_other") +
                                     ": a link that leads in a loop or out of its directory; copy the files into the "
                                     "directory, or allow links with --lora_dir_links follow");
  EXPECT_EQ(errorOf([&] { dir->stampOf("to_other"); }), refusal("to_other"));
  EXPECT_EQ(refusal("fifo"), path("fifo") + ": not a regular file");
  EXPECT_EQ(refusal("sub"), path("sub") + ": not a regular file");
  EXPECT_EQ(refusal("none"), path("none") + ": No such file or directory");
  EXPECT_EQ(dir->stampOf("none"), std::nullopt);
  EXPECT_EQ(dir->stampOf("file"), stampOf(top_ / "root/tenant/file"));
  EXPECT_TRUE(dir->hasName("to_other"));
  EXPECT_FALSE(dir->hasName("none"));
  EXPECT_EQ(contents(tenant(Links::kFollow)->openFile("to_other")), "theirs");
}

// Otherwise an answer would show whether a file exists outside.
TEST_F(DirectoryTest, NothingIsFoundBehindALinkThatIsRefused) {
  using Kind = Directory::Kind;
  link((top_ / "outside").string(), "out");
  link("../other", "to_other");
  link("sub", "in");
  for (const Links links : {Links::kFollow, Links::kInside, Links::kNone}) {
    const auto dir = tenant(links);
    const Kind outside = links == Links::kFollow ? Kind::kFile : Kind::kNothing;
    EXPECT_EQ(dir->kindOf("out/secret"), outside);
    EXPECT_EQ(dir->kindOf("to_other/file"), outside);
    EXPECT_EQ(dir->kindOf("in/file"), links == Links::kNone ? Kind::kNothing : Kind::kFile);
    EXPECT_EQ(dir->kindOf("sub/file"), Kind::kFile);
    EXPECT_EQ(dir->kindOf("sub/deep"), Kind::kDirectory);
    EXPECT_EQ(dir->kindOf("out"), Kind::kLink);
  }
}

TEST_F(DirectoryTest, ATenantThatIsALinkIsRefused) {
  fs::create_directory_symlink("other", top_ / "root/alias");
  fs::create_directory_symlink("../outside", top_ / "root/out");
  for (const char* name : {"alias", "out"}) {
    EXPECT_NE(errorOf([&] { Directory::open(top_ / "root", Links::kNone)->openDirectory(name, Links::kInside); }), "");
    EXPECT_EQ(errorOf([&] { Directory::open(top_ / "root", Links::kFollow)->openDirectory(name, Links::kFollow); }),
              "");
  }
}

TEST_F(DirectoryTest, NamesAreBounded) {
  for (int i = 0; i < 20; ++i) write("root/other/" + std::to_string(i), "");
  const auto dir = Directory::open(top_ / "root/other");
  EXPECT_EQ(dir->names(21).names.size(), 21u);
  EXPECT_TRUE(dir->names(21).complete);
  EXPECT_EQ(dir->names(20).names.size(), 20u);
  EXPECT_FALSE(dir->names(20).complete);
  EXPECT_EQ(dir->names(0).names.size(), 0u);
  EXPECT_TRUE(std::ranges::is_sorted(dir->names(21).names));
  EXPECT_TRUE(dir->directoryNames(0).complete) << "files do not count";
  link("file", "to_file");
  const auto found = Directory::open(top_ / "root/tenant")->directoryNames(10);
  EXPECT_EQ(found.names, (std::vector<std::string>{"sub", "to_file"}));
}

TEST_F(DirectoryTest, ADirectoryIsTheSameOneWhateverBecomesOfItsPath) {
  const auto dir = tenant(Links::kInside);
  fs::rename(top_ / "root/tenant", top_ / "moved");
  fs::create_directory_symlink(top_ / "outside", top_ / "root/tenant");
  EXPECT_EQ(contents(dir->openFile("file")), "mine");
}

// While files are read, the tenant replaces them, and a directory on the path to one, with links that lead out.
TEST_F(DirectoryTest, SwappingLinksDuringAReadDoesNotLeaveTheDirectory) {
  const fs::path tenant_dir = top_ / "root/tenant";
  write("outside/file", "secret");
  std::atomic<bool> stop = false;
  std::thread swapper([&] {
    const auto replace = [](const fs::path& from, const fs::path& to) { ::rename(from.c_str(), to.c_str()); };
    while (!stop) {
      std::ofstream(top_ / "plain") << "mine";
      replace(top_ / "plain", tenant_dir / "file");
      fs::create_symlink(top_ / "outside/secret", top_ / "link");
      replace(top_ / "link", tenant_dir / "file");
      replace(tenant_dir / "sub", top_ / "kept");
      fs::create_symlink("../../outside", tenant_dir / "sub");
      fs::remove(tenant_dir / "sub");
      replace(top_ / "kept", tenant_dir / "sub");
    }
  });
  const Descriptor dir(::open(tenant_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int read = 0, refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    for (const auto open : {openBeneath, openBeneathByComponents}) {
      const Descriptor fd(open(dir.get(), i % 2 == 0 ? "file" : "sub/file", O_RDONLY | O_NONBLOCK, Links::kInside));
      if (!fd) {
        ++refused;
        continue;
      }
      const std::string text = contents(fd);
      ++read;
      EXPECT_TRUE(text == "mine" || text.empty()) << text;
    }
  }
  stop = true;
  swapper.join();
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace chorus
