// Choices that depend on measurements, and the file that keeps them.
#include "kernels/kept_choices.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace nn;

namespace {

// A new folder for caches, while it exists.
class CacheFolder {
public:
    CacheFolder() {
        setenv("XDG_CACHE_HOME", path_.c_str(), 1);
        std::filesystem::remove_all(path_);
    }
    ~CacheFolder() {
        before_ ? setenv("XDG_CACHE_HOME", value_.c_str(), 1) : unsetenv("XDG_CACHE_HOME");
        std::filesystem::remove_all(path_);
    }
    CacheFolder(const CacheFolder&) = delete;
    std::filesystem::path only_file() const {
        return *std::filesystem::directory_iterator(path_ / "nnlua");
    }

private:
    const std::filesystem::path path_ =
        std::filesystem::temp_directory_path() / ("nnlua-cache-" + std::to_string(getpid()));
    const char* const before_ = getenv("XDG_CACHE_HOME");
    const std::string value_ = before_ ? before_ : "";
};

std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a choice is measured once, and kept for later starts and other processes") {
    const CacheFolder folder;
    const auto never = []() -> int { throw std::runtime_error("measured again"); };
    KeptChoices first("a title"), at_once("a title");
    CHECK(first.find("x", [] { return 3; }) == 3);
    CHECK(first.find("x", never) == 3);
    CHECK(at_once.find("x", never) == 3);
    CHECK(first.find("y", [] { return -1; }) == -1);  // nothing was measured
    CHECK(at_once.find("y", [] { return 0; }) == 0);
    CHECK(first.find("y", never) == 0);
    CHECK(KeptChoices("a title").find("y", never) == 0);
    CHECK(contents(folder.only_file()) == "a title\nx 3\ny 0\n");
    CHECK_THROWS_WITH(KeptChoices("another title").find("x", never), "measured again");
    KeptChoices("").find("x", [] { return 3; });
    CHECK_THROWS_WITH(KeptChoices("").find("x", never), "measured again");
}

TEST_CASE("a damaged file of choices, or none, costs only measurements") {
    const CacheFolder folder;
    KeptChoices("title").find("x", [] { return 3; });
    const auto path = folder.only_file();
    const auto one = [] { return 1; };
    std::ofstream(path) << "title\nx -5\ny 1e9 7\n\nz 8\nlast 1";
    CHECK(KeptChoices("title").find("z", one) == 8);
    CHECK(KeptChoices("title").find("x", one) == 1);
    CHECK(KeptChoices("title").find("x", [] { return 2; }) == 1);
    CHECK(KeptChoices("title").find("last", [] { return 2; }) == 2);
    CHECK(KeptChoices("title").find("last", one) == 2);
    std::ofstream(path) << "title of another program\nx 3\n";
    CHECK(KeptChoices("title").find("x", one) == 1);
    CHECK(contents(path) == "title\nx 1\n");
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    KeptChoices without_file("title");
    CHECK(without_file.find("x", one) == 1);
    CHECK(without_file.find("x", [] { return 2; }) == 1);
}
