// Choices that depend on measurements, and the file that keeps them.
#include "kernels/kept_choices.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "kernels/cache_files.h"

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

TEST_CASE("what is no regular file of sensible size is neither read nor written as kept choices") {
    const CacheFolder folder;
    KeptChoices("title").find("x", [] { return 3; });
    const std::filesystem::path path = folder.only_file();
    const auto replaced_by = [&](const char* command) {
        std::filesystem::remove(path);
        return std::system((std::string(command) + " '" + path.string() + "'").c_str()) == 0;
    };
    for (const char* command : {"mkfifo", "ln -s /dev/zero", "ln -s /dev/full", "mkdir"}) {
        INFO(command);
        REQUIRE(replaced_by(command));
        const auto before = std::filesystem::symlink_status(path).type();
        CHECK(KeptChoices("title").find("x", [] { return 4; }) == 4);
        CHECK(std::filesystem::symlink_status(path).type() == before);
    }
    REQUIRE(replaced_by("truncate -s 100G"));
    CHECK(KeptChoices("title").find("x", [] { return 5; }) == 5);
    CHECK(KeptChoices("title").find("x", [] { return 6; }) == 5);
}

TEST_CASE("a wait for a lock is reported, and ends at its limit or when it is given up") {
    const CacheFolder folder;
    const std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("nnlua-lock-" + std::to_string(getpid()));
    const FileLock held(path);
    static int calls, ends;
    calls = ends = 0;
    auto* const before = std::exchange(on_wait_for_lock, [](const char* file, double seconds) {
        (file ? calls : ends) += 1;
        return seconds < 0.05;
    });
    { const FileLock given_up(path); }
    CHECK((calls >= 2 && ends == 1));
    on_wait_for_lock = nullptr;
    { const FileLock limited(path, 0.05); }
    { const FileLock at_once(path, 1e6); }  // no second wait
    on_wait_for_lock = before;
    std::filesystem::remove(path);
}
