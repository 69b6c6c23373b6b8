// Files that tensors are written to in the background: their contents, what waits for what, and
// errors.
#include "engine/io/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "engine/io/output_file.h"
#include "tests/cpp/capi_test.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

// A folder that is removed at the end of the test.
struct Folder {
    std::string path;
    Folder() : path(std::filesystem::temp_directory_path() / "nnlua-XXXXXX") {
        REQUIRE(mkdtemp(path.data()) != nullptr);
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string file(const char* name = "file") const { return path + "/" + name; }
};

std::vector<uint8_t> bytes_in(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// The CRC-32 of ISO 3309, bit by bit.
uint32_t crc32_by_definition(const std::vector<uint8_t>& bytes) {
    uint32_t crc = ~0U;
    for (const uint8_t byte : bytes) {
        crc ^= byte;
        for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320U : 0);
    }
    return ~crc;
}

}  // namespace

TEST_CASE("a file contains its tensors row-major for any cuts, and its checksum is its CRC-32") {
    const Session session;
    const Folder folder;
    Random random(1);
    CHECK(crc32_by_definition({'1', '2', '3', '4', '5', '6', '7', '8', '9'}) == 0xCBF43926U);
    for (int round = 0; round < 60; ++round) {
        const Dims shape = random_shape(random, size_t(random.integer(0, 4)), 7);
        const Tensor x = numbered_tensor(random_grid(random, shape)), y = op("neg", {x});
        const std::string head = "head" + std::string(size_t(random.integer(0, 9)), '.');
        INFO(to_string(x.grid()));
        TensorFile file(folder.file(), int64_t(head.size()) + x.bytes() + y.bytes());
        file.append(head.data(), int64_t(head.size()));
        file.append(x);
        if (round % 2) file.drain();
        file.append(y);
        file.close();
        file.wait();
        std::vector<uint8_t> expected(head.begin(), head.end());
        for (const Tensor& t : {x, y})
            for (const uint8_t byte : bytes_of(t)) expected.push_back(byte);
        const std::vector<uint8_t> found = bytes_in(folder.file());
        REQUIRE(found == expected);
        REQUIRE(file.crc32() == crc32_by_definition(found));
    }
}

TEST_CASE("tiles larger than the buffer are written completely, cut along rows or columns",
          "[sweep]") {
    const Session session;
    const Folder folder;
    const int64_t rows = 3, cols = (int64_t(5) << 20) / 8 + 3;
    for (const Dims& tile : {Dims{rows, cols}, Dims{2, cols}, Dims{rows, cols / 2}}) {
        const Tensor x = numbered_tensor(grid_of({rows, cols}, tile));
        TensorFile file(folder.file(), x.bytes());
        file.append(x);
        file.close();
        file.wait();
        CHECK(bytes_in(folder.file()) == bytes_of(x));
    }
}

TEST_CASE("a file has the values from the call, and later changes wait for the write") {
    const Session session(1);
    const Folder folder;
    const Tensor x = numbered_tensor(grid_of({64}, {8})), gate_tile = scalar_of(0);
    const std::vector<uint8_t> before = bytes_of(x);
    TensorFile file(folder.file(), x.bytes());
    {
        const Gate gate;
        emit_gate(gate_tile.tile(0));
        REQUIRE(Gate::reached());
        file.append(x);
        file.close();
        op("add_", {x, scalar_of(100)});
    }
    CHECK(values_of(x) == numbered(64, 100));
    file.wait();
    CHECK(bytes_in(folder.file()) == before);
}

TEST_CASE("tiles are free before they are on the disk, as long as the buffer has room") {
    const Session session;
    const Folder folder;
    const int64_t count = (int64_t(40) << 20) / 8;
    const Tensor x = numbered_tensor(grid_of({count}, {count / 8}));
    const std::vector<uint8_t> before = bytes_of(x);
    REQUIRE(mkfifo(folder.file().c_str(), 0600) == 0);
    const int fd = open(folder.file().c_str(), O_RDWR);  // nothing reads yet
    REQUIRE(fd >= 0);
    TensorFile file(folder.file(), x.bytes());
    file.append(x);
    file.close();
    file.drain();  // a pipe holds 64 KB
    op("add_", {x, scalar_of(1)});
    CHECK(values_of(x) == numbered(count, 1));
    CHECK(!file.done());
    std::vector<uint8_t> found(before.size());
    for (size_t at = 0; at < found.size();) {
        const ssize_t got = read(fd, found.data() + at, found.size() - at);
        REQUIRE(got > 0);
        at += size_t(got);
    }
    file.wait();
    CHECK(found == before);
    close(fd);
}

TEST_CASE("append blocks on the disk when the buffer is full") {
    const Folder folder;
    REQUIRE(mkfifo(folder.file().c_str(), 0600) == 0);
    const int fd = open(folder.file().c_str(), O_RDWR);
    REQUIRE(fd >= 0);
    set_budget(arena_info().peak + 1);
    const std::vector<char> bytes(size_t(100) << 20, 'n');
    std::atomic<bool> given = false;
    std::thread giver([&] {
        OutputFile file(folder.file(), 0);
        file.append(bytes.data(), bytes.size());
        given = true;
        file.finish();
    });
    std::vector<char> found(size_t(1) << 20);
    size_t total = 0;
    while (total < bytes.size()) {
        // The buffer holds 16 MB and the pipe 64 KB.
        if (total + (size_t(20) << 20) < bytes.size()) CHECK(!given);
        const ssize_t got = read(fd, found.data(), found.size());
        REQUIRE(got > 0);
        REQUIRE(std::count(found.begin(), found.begin() + got, 'n') == got);
        total += size_t(got);
    }
    giver.join();
    set_budget(0);
    CHECK(total == bytes.size());
    close(fd);
}

TEST_CASE("invalid writes to a file are refused") {
    const Session session;
    const Folder folder;
    const Tensor x = numbered_tensor(grid_of({6}, {2}));
    CHECK_THAT(error_of([&] { TensorFile(folder.file("none/file"), 8); }),
               contains("cannot write '" + folder.file("none/file") + "': No such file"));
    CHECK_THAT(error_of([&] { TensorFile(folder.path, 8); }), contains("Is a directory"));
    CHECK_THAT(error_of([&] { TensorFile(folder.file(), -1); }), contains("-1 bytes"));
    TensorFile file(folder.file(), x.bytes());
    for (const int64_t bytes : {int64_t(-1), int64_t(49), INT64_MAX, INT64_MIN})
        CHECK_THAT(error_of([&] { file.append("", bytes); }), contains("do not fit into"));
    CHECK_THAT(error_of([&] { file.close(); }), contains("needs 48 bytes, but 0 were given"));
    CHECK_THAT(error_of([&] { file.wait(); }), contains("is not closed yet"));
    CHECK_THAT(error_of([&] { file.append(Tensor(Grid::whole({6}), Dtype::i64)); }),
               contains("never given a value"));
    begin_recording();
    CHECK_THAT(error_of([&] { file.append(x); }), contains("while a compiled function"));
    abort_recording();
    file.append(x);
    file.close();
    CHECK_THAT(error_of([&] { file.close(); }), contains("is closed already"));
    CHECK_THAT(error_of([&] { file.append(x); }), contains("is closed already"));
    file.wait();
    file.wait();
}

TEST_CASE("an abandoned file waits for nothing and leaves the tensors unchanged") {
    const Session session(1);
    const Folder folder;
    const Tensor x = numbered_tensor(grid_of({64}, {8}));
    {
        const Gate gate;  // no file has the last tile before it opens
        emit_gate(x.tile(x.tiles() - 1));
        REQUIRE(Gate::reached());
        for (const bool closed : {false, true}) {
            TensorFile file(folder.file(), x.bytes());
            file.append(x);
            if (closed) file.close();
        }
        CHECK(bytes_in(folder.file()).empty());  // truncated, so that a reader notices
    }
    wait_all();
    CHECK(values_of(x) == numbered(64));
}

}  // namespace nn::engine_test

namespace nn::capi_test {

TEST_CASE("the C API writes files, waits for them, and refuses invalid handles") {
    const Library library;
    const engine_test::Folder folder;
    const nn_ref x = full({4}, 2.5);
    nn_ref file{};
    REQUIRE_OK(nn_file_create(folder.file().c_str(), 40, &file));
    REQUIRE_OK(nn_file_append(&file, "12345678", 8));
    REQUIRE_OK(nn_file_append_tensor(&file, &x));
    uint32_t crc = 0, expected = 0;
    int32_t done = -1;
    CHECK_REFUSED(nn_file_wait(&file, &crc), "is not closed yet");
    REQUIRE_OK(nn_file_close(&file));
    REQUIRE_OK(nn_file_wait(&file, &crc));
    REQUIRE_OK(nn_file_done(&file, &done));
    CHECK(done == 1);
    const std::vector<uint8_t> bytes = engine_test::bytes_in(folder.file());
    REQUIRE(bytes.size() == 40);
    REQUIRE_OK(nn_crc32(bytes.data(), 10, 0, &expected));
    REQUIRE_OK(nn_crc32(bytes.data() + 10, 30, expected, &expected));
    CHECK(crc == expected);
    REQUIRE_OK(nn_release(&file));
    for (const nn_ref bad : {file, x, nn_ref{0, 0}, nn_ref{-1, 1}}) {
        const char* const why = "not a live file";
        CHECK_REFUSED(nn_file_append(&bad, "1", 1), why);
        CHECK_REFUSED(nn_file_append_tensor(&bad, &x), why);
        CHECK_REFUSED(nn_file_drain(&bad), why);
        CHECK_REFUSED(nn_file_close(&bad), why);
        CHECK_REFUSED(nn_file_done(&bad, &done), why);
        CHECK_REFUSED(nn_file_wait(&bad, &crc), why);
    }
    CHECK_REFUSED(nn_file_create(nullptr, 8, &file), "path is NULL");
    CHECK_REFUSED(nn_file_create(folder.file().c_str(), 8, nullptr), "file is NULL");
    CHECK_REFUSED(nn_file_wait(nullptr, &crc), "file is NULL");
    CHECK_REFUSED(nn_crc32(nullptr, 8, 0, &crc), "8 bytes of NULL");
    REQUIRE_OK(nn_file_create(folder.file().c_str(), 32, &file));
    CHECK_REFUSED(nn_file_append_tensor(&file, &file), "not a live tensor");
    CHECK_REFUSED(nn_file_append(&file, nullptr, 8), "data is NULL");
    REQUIRE_OK(nn_file_append_tensor(&file, &x));
    REQUIRE_OK(nn_file_close(&file));  // abandoned by the shutdown
}

}  // namespace nn::capi_test
