// Messages between ranks: in parts, several at once, and bytes that are none.
#include "engine/ranks/sockets.h"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

struct Pair {
    Pair() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0); }
    ~Pair() { close(ends[0]), close(ends[1]); }
    int ends[2];
};

TEST_CASE("messages between ranks arrive whole and in order") {
    const Pair pair;
    sockets::Inbox inbox;
    sockets::Message message;
    const std::string text(10'000, 'x');
    REQUIRE(sockets::send(pair.ends[0], sockets::Type::value, text, 1));
    REQUIRE(sockets::send(pair.ends[0], sockets::Type::beat, "", 1));
    REQUIRE(inbox.read(pair.ends[1]));
    REQUIRE(inbox.next(&message));
    CHECK(message.type == sockets::Type::value);
    CHECK(message.text == text);
    REQUIRE(inbox.next(&message));
    CHECK(message.type == sockets::Type::beat);
    CHECK_FALSE(inbox.next(&message));
    CHECK_FALSE(inbox.is_damaged());
    const uint32_t header[2] = {uint32_t(sockets::Type::hello), 3};  // and its text later
    REQUIRE(write(pair.ends[0], header, sizeof header) == sizeof header);
    REQUIRE(inbox.read(pair.ends[1]));
    CHECK_FALSE(inbox.next(&message));
    REQUIRE(write(pair.ends[0], "abc", 3) == 3);
    REQUIRE(inbox.read(pair.ends[1]));
    REQUIRE(inbox.next(&message));
    CHECK(message.text == "abc");
}

TEST_CASE("a partly sent message closes the connection") {
    const Pair pair;
    sockets::Inbox inbox;
    sockets::Message message;
    REQUIRE(sockets::send(pair.ends[0], sockets::Type::beat, "", 1));
    CHECK_FALSE(
        sockets::send(pair.ends[0], sockets::Type::value, std::string(32 << 20, 'x'), 0.05));
    CHECK_FALSE(sockets::send(pair.ends[0], sockets::Type::beat, "", 0.05));
    CHECK_FALSE(inbox.read(pair.ends[1]));
    REQUIRE(inbox.next(&message));
    CHECK(message.type == sockets::Type::beat);
    CHECK_FALSE(inbox.next(&message));  // nothing after it is taken for a message
}

TEST_CASE("bytes that are no message between ranks are found") {
    const std::string garbage = GENERATE(std::string("GET / HTTP/1.1\r\n"), std::string(8, '\xff'),
                                         std::string("\x63\0\0\0\0\0\0\0", 8));
    const Pair pair;
    sockets::Inbox inbox;
    sockets::Message message;
    REQUIRE(write(pair.ends[0], garbage.data(), garbage.size()) == ssize_t(garbage.size()));
    REQUIRE(inbox.read(pair.ends[1]));
    CHECK_FALSE(inbox.next(&message));
    CHECK(inbox.is_damaged());
}

}  // namespace
}  // namespace nn::engine_test
