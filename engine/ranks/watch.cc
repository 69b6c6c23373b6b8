#include "engine/ranks/watch.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>
#include <sstream>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"

namespace nn {
namespace {

using sockets::Message;
using sockets::Type;

constexpr char variable[] = "NNLUA_LAUNCHER";  // "KEY PORT ADDRESS ADDRESS ...", in hex
constexpr double seconds_to_connect = 5;

int to_launcher = -1;  // the socket of rank 0
std::atomic<bool> is_between_steps{true};

}  // namespace

double heartbeat_limit() {
    const char* text = std::getenv("NNLUA_HEARTBEAT");
    if (!text || !*text) return 30;
    char* end = nullptr;
    const double limit = std::strtod(text, &end);
    if (*end || !(limit > beat_interval))
        fail("NNLUA_HEARTBEAT is '%s'; a number of seconds above %g is needed", text,
             beat_interval);
    return limit;
}

RankWatch::RankWatch()
    : key_(format("%08x%08x", std::random_device()(), std::random_device()())),
      limit_(heartbeat_limit()) {
    sockets::Address address;
    listener_ = sockets::listen(&address);
    std::string text = key_ + format(" %x", address.port);
    for (uint32_t host : address.hosts) text += format(" %x", host);
    setenv(variable, text.c_str(), 1);
}

RankWatch::~RankWatch() {
    for (int socket : {listener_, socket_})
        if (socket >= 0) close(socket);
}

void RankWatch::wait(double seconds) {
    const double begin = now_seconds();
    const bool is_over = is_lost_ || is_done_;
    pollfd one{is_over ? -1 : socket_ >= 0 ? socket_ : listener_, POLLIN, 0};
    const bool has_arrived = poll(&one, 1, int(seconds * 1000)) > 0;
    if (is_over) return;
    if (socket_ < 0) {
        if (has_arrived) accept_rank();
        return;
    }
    // A pause of this process, as by Ctrl-Z, is no silence of the rank.
    if (has_beat_) silence_ += std::min(now_seconds() - begin, 1.0);
    bool is_open = true;
    if (has_arrived) {
        is_open = inbox_.read(socket_);
        silence_ = 0;
        for (Message message; inbox_.next(&message);) {
            has_beat_ = has_beat_ || message.type == Type::beat;
            if (message.type == Type::beat) is_between_steps_ = message.text == "ended";
            is_done_ = is_done_ || message.type == Type::end;
        }
    }
    is_lost_ = !is_done_ && (!is_open || silence_ > limit_);
    if (is_lost_ || !is_open) close(std::exchange(socket_, -1));
}

void RankWatch::accept_rank() {
    const int socket = sockets::accept(listener_, 0);
    if (socket < 0) return;
    sockets::Inbox inbox;
    Message hello;
    for (const double end = now_seconds() + 1; !inbox.next(&hello) && now_seconds() < end;) {
        if (!inbox.read(socket)) break;
        usleep(1000);
    }
    if (hello.text != key_) {
        close(socket);  // not our rank
        return;
    }
    socket_ = socket, inbox_ = std::move(inbox), has_met_ = true;
}

void watch::join() {
    const char* text = std::getenv(variable);
    if (!text) return;
    std::istringstream words(text);
    sockets::Address address;
    std::string key;
    words >> key >> std::hex >> address.port;
    for (uint32_t& host : address.hosts) words >> host;
    to_launcher = sockets::connect(address, true, seconds_to_connect);
    if (to_launcher >= 0) sockets::send(to_launcher, Type::hello, key, seconds_to_connect);
}

void watch::beat() {
    if (to_launcher >= 0)
        sockets::send(to_launcher, Type::beat, is_between_steps ? "ended" : "", 0);
}

void watch::set_between_steps(bool is) { is_between_steps = is; }

void watch::done() {
    if (to_launcher >= 0) sockets::send(to_launcher, Type::end, "", 1);
}

}  // namespace nn
