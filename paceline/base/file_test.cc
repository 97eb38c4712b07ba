#include "paceline/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/base/rng.h"
#include "paceline/base/test_files.h"

namespace paceline::base {
namespace {
namespace fs = std::filesystem;
using test::error_of;
using test::TempFolder;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Lets no file of this process grow beyond `bytes`: what a full disk looks like to a writer.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, before_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*before_)(int);
};

TEST(WriteTextFile, WritesAndReplacesLeavingNothingBesideIt) {
  const TempFolder folder;
  const fs::path path = folder.path() / "a.json";
  write_text_file(path, "one");
  write_text_file(path, "two");
  EXPECT_EQ(read_text_file(path), "two");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.json"});
}

TEST(WriteTextFile, AFailureLeavesTheOldFileWhole) {
  const TempFolder folder;
  const fs::path path = folder.write("a.json", "old and whole");
  const std::string large(100'000, 'x');
  {
    const FileSizeLimit limit(4096);
    try {
      write_text_file(path, large);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kSystem);
      EXPECT_EQ(error.where(), path.string());
    }
  }
  EXPECT_EQ(read_text_file(path), "old and whole");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.json"});
}

TEST(WriteTextFile, NamesThePathThatCannotBeWritten) {
  const std::string message = error_of([] { write_text_file("/nowhere/at/all.json", "x"); });
  EXPECT_EQ(message,
            "/nowhere/at/all.json: cannot write: No such file or directory; check the path and its permissions");
}

TEST(WriteTextFile, KeepsLinksAndPermissions) {
  const TempFolder folder;
  const fs::path real = folder.write("deep/real.json", "old");
  ::chmod(real.c_str(), 0600);
  const fs::path link = folder.path() / "link.json";
  fs::create_symlink(real, link);
  write_text_file(link, "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read_text_file(real), "new");
  EXPECT_EQ(static_cast<unsigned>(fs::status(real).permissions()), 0600u);
}

TEST(WriteTextFile, WritesToDevicesAndPipesInsteadOfReplacingThem) {
  const TempFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { received = read_text_file(pipe); });
  write_text_file(pipe, "through the pipe");
  reader.join();
  EXPECT_EQ(received, "through the pipe");
  EXPECT_TRUE(fs::is_fifo(pipe));
  write_text_file("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(ReadTextFile, TellsWhatIsWrong) {
  const TempFolder folder;
  EXPECT_NE(error_of([&] { read_text_file(folder.path()); }).find("Is a directory"), std::string::npos);
  EXPECT_NE(error_of([&] { read_text_file(folder.path() / "no"); }).find("No such file"), std::string::npos);
  EXPECT_EQ(read_text_file(folder.write("empty", "")), "");
  EXPECT_NE(read_text_file("/proc/self/status").find("Pid:"), std::string::npos);  // says that its size is 0
}

TEST(MappedFile, ShowsTheFile) {
  const TempFolder folder;
  EXPECT_EQ(MappedFile(folder.write("a", "text")).text(), "text");
  EXPECT_EQ(MappedFile(folder.write("b", "")).text(), "");
  EXPECT_NE(error_of([&] { MappedFile{folder.path()}; }).find("no regular file"), std::string::npos);
}

TEST(ReadAll, TakesSourcesThatGiveLittleAtATime) {
  class Drip final : public ByteSource {
   public:
    std::size_t read(std::span<char> to) override {
      if (left_ == 0 || to.empty()) return 0;
      to[0] = static_cast<char>('a' + --left_ % 26);
      return 1;
    }

   private:
    int left_ = 200'000;
  };
  Drip drip;
  EXPECT_EQ(read_all(drip).size(), 200'000u);
  EXPECT_EQ(read_all(*memory_source("abc")), "abc");
}

TEST(NaturalLess, ComparesDigitsByValue) {
  EXPECT_TRUE(natural_less("rank-2.json", "rank-10.json"));
  EXPECT_FALSE(natural_less("rank-10.json", "rank-2.json"));
  EXPECT_TRUE(natural_less("rank-9", "rank-99999999999999999999999999"));
  EXPECT_TRUE(natural_less("a", "a1"));
  EXPECT_TRUE(natural_less("rank-01", "rank-1"));  // equal values are ordered by their writing
  EXPECT_FALSE(natural_less("x", "x"));
}

TEST(NaturalLess, OrdersAnyNamesStrictly) {
  Rng random(1);
  std::vector<std::string> names(60);
  for (std::string& name : names) {
    name.resize(random.below(6));
    for (char& c : name) c = "01a-\xC3"[random.below(5)];
  }
  for (const auto& a : names) {
    ASSERT_FALSE(natural_less(a, a));
    for (const auto& b : names) {
      ASSERT_EQ(natural_less(a, b) || natural_less(b, a), a != b) << a << " " << b;
      ASSERT_FALSE(natural_less(a, b) && natural_less(b, a));
      for (const auto& c : names) {
        const bool chained = natural_less(a, b) && natural_less(b, c);
        ASSERT_TRUE(!chained || natural_less(a, c)) << a << " " << b << " " << c;
      }
    }
  }
}

class ExpandInputs : public testing::Test {
 protected:
  std::vector<std::string> expand(const std::vector<std::string>& arguments) {
    std::vector<std::string> in_folder, names;
    for (const auto& argument : arguments) in_folder.push_back((folder_.path() / argument).string());
    for (const auto& file : expand_inputs(in_folder)) names.push_back(fs::relative(file, folder_.path()).string());
    return names;
  }

  TempFolder folder_;
};

using Names = std::vector<std::string>;

TEST_F(ExpandInputs, ADirectoryStandsForItsFilesInNaturalOrder) {
  for (const char* name : {"job/rank-10.json", "job/rank-2.json", "job/rank-1.json", "job/more/rank-0.json"}) {
    folder_.write(name, "x");
  }
  EXPECT_EQ(expand({"job"}), (Names{"job/more/rank-0.json", "job/rank-1.json", "job/rank-2.json", "job/rank-10.json"}));
}

TEST_F(ExpandInputs, HiddenFilesAndFoldersStayOutUnlessNamed) {
  folder_.write("job/.git/rank-0.json", "x");
  folder_.write("job/.rank-1.json.swp", "x");
  folder_.write("job/rank-1.json", "x");
  EXPECT_EQ(expand({"job"}), Names{"job/rank-1.json"});
  EXPECT_EQ(expand({"job/.rank-1.json.swp"}), Names{"job/.rank-1.json.swp"});
}

TEST_F(ExpandInputs, APatternStandsForItsMatches) {
  for (const char* name : {"a-10.json", "a-9.json", "b-1.json", "sub/c.json"}) folder_.write(name, "x");
  EXPECT_EQ(expand({"a-*.json"}), (Names{"a-9.json", "a-10.json"}));
  EXPECT_EQ(expand({"[b]-?.json"}), Names{"b-1.json"});
  EXPECT_EQ(expand({"s*"}), Names{"sub/c.json"});
}

TEST_F(ExpandInputs, AFileWhoseNameLooksLikeAPatternIsAFile) {
  folder_.write("a[1].json", "x");
  folder_.write("a1.json", "x");
  EXPECT_EQ(expand({"a[1].json"}), Names{"a[1].json"});
}

TEST_F(ExpandInputs, ArgumentsKeepTheirOrderAndNothingComesTwice) {
  for (const char* name : {"a.json", "b.json"}) folder_.write(name, "x");
  EXPECT_EQ(expand({"b.json", ".", "./a.json"}), (Names{"b.json", "a.json"}));
}

TEST_F(ExpandInputs, WhatNamesNothingIsAnError) {
  fs::create_directory(folder_.path() / "empty");
  EXPECT_NE(error_of([&] { expand({"empty"}); }).find("holds no files"), std::string::npos);
  EXPECT_NE(error_of([&] { expand({"no.json"}); }).find("no such file"), std::string::npos);
  EXPECT_NE(error_of([&] { expand({"no*.json"}); }).find("pattern"), std::string::npos);
  EXPECT_NE(error_of([&] { expand({std::string(5000, 'x')}); }), "");  // longer than any name may be
  fs::create_symlink("loop", folder_.path() / "loop");
  EXPECT_NE(error_of([&] { expand({"loop"}); }), "");
}

}  // namespace
}  // namespace paceline::base
