// The disk tier: extents keep what is written to them, and every failed transfer is an error.
#include "engine/memory/disk.h"

#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>

#include "engine/base/clock.h"
#include "tests/cpp/disk_test.h"

namespace nn::engine_test {

TEST_CASE("extents of a disk keep what is written, begin as zeros and are used again") {
    const Folder folder;
    Disk disk({folder.path});
    constexpr int count = 40;
    constexpr int64_t bytes = 5 * disk_block;
    std::vector<int64_t> extents;
    std::vector<Block> blocks;
    Waiter waiter;
    for (int i = 0; i < count; ++i) {
        extents.push_back(disk.allocate(bytes - 100, "a tile"));
        blocks.push_back(block(bytes, i + 1));
        disk.write(extents.back(), blocks.back().get(), bytes - 100, 0, "a tile", waiter.note());
    }
    const int64_t fresh = disk.allocate(bytes, "a tile");
    CHECK(disk.allocated_bytes() == (count + 1) * bytes);
    waiter.wait(count);
    const Block read = block(bytes, 0x55);
    for (int i = count; i-- > 0;) {
        disk.read(extents[size_t(i)], read.get(), bytes, 0, "a tile", waiter.note());
        waiter.wait(2 * count - i);
        REQUIRE(std::memcmp(read.get(), blocks[size_t(i)].get(), size_t(bytes)) == 0);
    }
    disk.read(fresh, read.get(), bytes, 0, "a tile", waiter.note());
    waiter.wait(2 * count + 1);
    CHECK(std::count(read.get(), read.get() + bytes, 0) == bytes);
    disk.release(extents[3], bytes);
    CHECK(disk.allocate(bytes, "a tile") == extents[3]);
    CHECK(waiter.error == "");
    CHECK(disk.totals().written == count * bytes);
    CHECK(disk.totals().read == (count + 1) * bytes);
    CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE("a limited disk keeps to its rate, and carries out the lowest order first") {
    const Folder folder;
    Disk disk({folder.path, 200e6, 1});
    constexpr int64_t bytes = 1 << 20;
    const int64_t extent = disk.allocate(bytes, "a tile");
    const Block data = block(bytes, 1);
    Waiter waiter;
    std::vector<int> order;
    const double begin = now_seconds();
    for (int i = 0; i < 10; ++i)
        disk.write(extent, data.get(), bytes, uint64_t(100 - i), "a tile",
                   [&, i, note = waiter.note()](const std::string& error) {
                       order.push_back(i);
                       note(error);
                   });
    waiter.wait(10);
    CHECK(now_seconds() - begin >= 10 * bytes / 200e6);
    CHECK(std::is_sorted(order.rbegin(), order.rend() - 1));  // the first began at once
}

TEST_CASE("a limited disk reaches its rate with small and large transfers", "[sweep]") {
    const Folder folder;
    const Block data = block(32 << 20, 1);
    for (const int64_t bytes : {int64_t(64) << 10, int64_t(1) << 20, int64_t(32) << 20}) {
        constexpr double rate = 500e6;  // below that of the disk
        Disk disk({folder.path, rate});
        const int64_t extent = disk.allocate(bytes, "a tile");
        const int count = int(std::max<int64_t>(4, int64_t(100e6) / bytes));
        Waiter waiter;
        const double begin = now_seconds();
        for (int i = 0; i < count; ++i) {
            if (i % 2)
                disk.write(extent, data.get(), bytes, 0, "a tile", waiter.note());
            else
                disk.read(extent, data.get(), bytes, 0, "a tile", waiter.note());
        }
        waiter.wait(count);
        const double measured = double(count) * double(bytes) / (now_seconds() - begin);
        INFO(format("%lld kB: %.1f MB/s", (long long)bytes >> 10, measured / 1e6));
        CHECK(measured <= 1.001 * rate);
        CHECK(measured >= 0.2 * rate);  // 0.999 where nothing else uses the disk and the cores
    }
}

TEST_CASE("a failed or short transfer is an error with the tile, the folder and the reason") {
    const Folder folder;
    struct Case {
        const char *injected, *expected;
    };
    for (const Case& c :
         {Case{"read:2:5",
               "weight, tile 3 cannot be read from the disk folder '%s': Input/output error"},
          Case{"write:1:28",
               "weight, tile 3 cannot be written to the disk folder '%s': No space left on device"},
          Case{"read:1:zero",
               "weight, tile 3 cannot be read from the disk folder '%s': only 0 of 4096 bytes "
               "were transferred"},
          Case{"read:1:part,read:2:zero",
               "weight, tile 3 cannot be read from the disk folder '%s': only 2048 of 4096 bytes "
               "were transferred"}}) {
        setenv("NNLUA_FAIL_DISK", c.injected, 1);
        Disk disk({folder.path});
        const int64_t extent = disk.allocate(disk_block, "a tile");
        const Block data = block(disk_block, 1);
        Waiter waiter;
        // One after the other: the injected failure counts the calls of all threads.
        disk.write(extent, data.get(), disk_block, 0, "weight, tile 3", waiter.note());
        waiter.wait(1);
        disk.read(extent, data.get(), disk_block, 0, "weight, tile 3", waiter.note());
        waiter.wait(2);
        disk.read(extent, data.get(), disk_block, 0, "weight, tile 3", waiter.note());
        waiter.wait(3);
        unsetenv("NNLUA_FAIL_DISK");
        std::string expected = c.expected;
        CHECK(waiter.error == expected.replace(expected.find("%s"), 2, folder.path));
    }
}

TEST_CASE("a disk without O_DIRECT, unnamed files or reserved space keeps what is written") {
    const Folder folder;
    for (const char* injected :
         {"open:1:22", "open:1:95", "reserve:1+:95", "reserve:1:22", "write:1:22", "read:1:22",
          "write:1:part", "read:1+:part", "write:1+:part", "write:2:4,read:1:4"}) {
        setenv("NNLUA_FAIL_DISK", injected, 1);
        Disk disk({folder.path});
        unsetenv("NNLUA_FAIL_DISK");
        constexpr int64_t bytes = 3 * disk_block;
        const int64_t first = disk.allocate(bytes, "a tile"),
                      second = disk.allocate(bytes, "a tile");
        const Block data = block(bytes, 7), other = block(bytes, 8), read = block(bytes, 9);
        Waiter waiter;
        disk.write(first, data.get(), bytes, 0, "a tile", waiter.note());
        disk.write(second, other.get(), bytes, 0, "a tile", waiter.note());
        waiter.wait(2);
        disk.read(first, read.get(), bytes, 0, "a tile", waiter.note());
        waiter.wait(3);
        INFO(injected);
        CHECK(waiter.error == "");
        CHECK(std::memcmp(read.get(), data.get(), size_t(bytes)) == 0);
        CHECK(std::filesystem::is_empty(folder.path));
    }
}

TEST_CASE("an injected failure that cannot be read is an error") {
    const Folder folder;
    for (const char* injected : {"write", "write:3", "write:0:5", "wrote:3:5", "read:3:none"}) {
        setenv("NNLUA_FAIL_DISK", injected, 1);
        CHECK_THROWS_WITH(Disk({folder.path}), Catch::Contains("CALL:NUMBER:KIND is needed"));
    }
    unsetenv("NNLUA_FAIL_DISK");
}

TEST_CASE("threads of the disk leave signals to the main thread") {
    const Folder folder;
    const Disk disk({folder.path});
    int threads = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name, line;
        std::getline(std::ifstream(task.path() / "comm"), name);
        if (name != "nnlua disk") continue;
        ++threads;
        std::ifstream status(task.path() / "status");
        while (std::getline(status, line))
            if (line.rfind("SigBlk:", 0) == 0) {
                const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
                for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU})
                    CHECK((blocked >> (signal - 1) & 1) == 1);
            }
    }
    CHECK(threads == 4);
}

TEST_CASE("a forked process can neither use the disk nor hang at its end") {
    const Folder folder;
    std::optional<Disk> disk;
    disk.emplace(Disk::Options{folder.path});
    const int64_t extent = disk->allocate(disk_block, "a tile");
    const Block data = block(disk_block, 3);
    const pid_t child = fork();
    if (child == 0) {
        std::string error;
        disk->write(extent, data.get(), disk_block, 0, "a tile",
                    [&](const std::string& e) { error = e; });
        disk.reset();
        _exit(error.find("is a fork of the one") != std::string::npos ? 0 : 1);
    }
    int status = -1;
    for (int tenths = 0; tenths < 600 && waitpid(child, &status, WNOHANG) == 0; ++tenths)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (status == -1) kill(child, SIGKILL);
    CHECK(status == 0);
    Waiter waiter;
    disk->read(extent, data.get(), disk_block, 0, "a tile", waiter.note());
    waiter.wait(1);
    CHECK(std::count(data.get(), data.get() + disk_block, 0) == disk_block);
}

TEST_CASE("the end of a disk waits for the transfers that were asked for") {
    const Folder folder;
    Waiter waiter;
    const Block data = block(disk_block, 3);
    {
        Disk disk({folder.path, 0, 1});
        const int64_t extent = disk.allocate(disk_block, "a tile");
        for (int i = 0; i < 100; ++i)
            disk.write(extent, data.get(), disk_block, 0, "a tile", waiter.note());
    }
    CHECK(waiter.done == 100);
    CHECK(waiter.error == "");
}

TEST_CASE("a folder that does not exist, or has no space, is an error") {
    CHECK_THROWS_WITH(Disk({"/no/such/folder"}),
                      "the disk folder '/no/such/folder' cannot be used: No such file or "
                      "directory; name a folder in which files can be written");
    const Folder folder;
    Disk disk({folder.path});
    CHECK_THROWS_WITH(
        disk.allocate(int64_t(1) << 60, "a tile"),
        Catch::Contains("a tile cannot get space in the disk folder '" + folder.path));
    CHECK(disk.allocate(disk_block, "a tile") == 0);
}

}  // namespace nn::engine_test
