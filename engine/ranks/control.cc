#include "engine/ranks/control.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/delays.h"
#include "engine/base/error.h"
#include "engine/base/exit_files.h"
#include "engine/base/threads.h"
#include "engine/base/waiting.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/sockets.h"
#include "engine/ranks/standstill.h"
#include "engine/ranks/transport.h"
#include "engine/ranks/watch.h"

namespace nn::control {
namespace {

using sockets::Message;
using sockets::Type;

constexpr double seconds_to_start = 60, seconds_to_send = 10, seconds_to_end = 2;
constexpr double seconds_for_own_error = 0.5;

// Rank 0 has a peer for every other rank; the others have rank 0 alone.
struct Peer {
    int rank = 0, socket = -1;
    std::string host;
    sockets::Inbox inbox;
    double silence = 0;              // seconds since something arrived
    std::atomic<bool> ended{false};  // set by the control thread
};

// Never destroyed: its thread runs to the end.
struct State {
    std::mutex mutex;  // of what follows
    std::condition_variable changed;
    std::deque<Peer> peers;                  // of a fixed number once the channel has started
    std::vector<std::string> given;          // rank 0: the values of a gather() so far
    std::vector<char> has_given;             // rank 0
    std::vector<std::string> gathered;       // the result
    bool complete = false, is_last = false;  // is_last: no other gather() follows
    std::string error;                       // rank 0: the first that arrived
    double error_since = 0;
    std::optional<standstill::Watch> standstill;  // rank 0
    std::mutex sending;
    std::atomic<bool> ending{false}, is_printed{false}, is_started{false};
    double limit = 0;               // of a silence, in seconds
    bool is_report_wanted = false;  // by rank 0 of this rank; of the control thread
};
State& state() {
    static auto* const instance = new State;
    return *instance;
}

// Whether the message was sent. One to a peer that has ended is dropped and counts as sent.
bool send_to(const Peer& peer, Type type, const std::string& text) {
    delay(0.2);
    const std::lock_guard lock(state().sending);
    if (peer.ended && type != Type::end) return true;
    const bool is_short = type != Type::value && type != Type::values && type != Type::report;
    return sockets::send(peer.socket, type, text, is_short ? seconds_to_end : seconds_to_send);
}

bool send_to_all(Type type, const std::string& text) {
    bool all = true;
    for (const Peer& peer : state().peers) all = send_to(peer, type, text) && all;
    return all;
}

[[noreturn]] void leave(int code) {
    std::fflush(nullptr);
    exit_files::end_process(code ? code : 1);
}

[[noreturn]] void print_and_end(const std::string& text) {
    // Rank 0 prints, and rank 1 where rank 0 is lost.
    const bool is_silent = started() && ranks().rank > 1;
    if (!state().is_printed.exchange(true) && !is_silent)
        std::fprintf(stderr, "nnlua: %s\n", text.c_str());
    if (ranks().rank == 0) send_to_all(Type::end, "1");
    leave(1);
}

std::string name_of(const Peer& peer) {
    return format("rank %d on %s", peer.rank, peer.host.c_str());
}

// With the mutex. After the last gather, ranks may close their connections.
void complete_gather() {
    State& s = state();
    s.complete = true;
    ++ended_events;
    if (s.is_last) s.ending = true;
    s.changed.notify_all();
}

// With the mutex.
void note_error(const std::string& text) {
    if (!state().error.empty()) return;
    state().error = text;
    state().error_since = now_seconds();
}
void lose(Peer& peer, const std::string& how) {
    peer.ended = true;
    if (!state().ending) note_error(name_of(peer) + " " + how);
}

// Rank 0, with the mutex: keeps a rank's value; with the last one, gives all to all.
void keep_value(int rank, const std::string& text) {
    State& s = state();
    s.given[size_t(rank)] = text;
    s.has_given[size_t(rank)] = 1;
    for (char given : s.has_given)
        if (!given) return;
    s.gathered = s.given;
    std::ranges::fill(s.has_given, char(0));
    complete_gather();
    const std::string all = sockets::packed(s.gathered);
    for (Peer& peer : s.peers)
        if (!send_to(peer, Type::values, all))
            lose(peer, sockets::why_not_sent(all.size(), seconds_to_send));
}

void handle(Peer& peer, const Message& message) {
    State& s = state();
    switch (message.type) {
        case Type::value: keep_value(peer.rank, message.text); break;
        case Type::values:
            s.gathered = sockets::unpacked(message.text);
            complete_gather();
            break;
        case Type::error:
            peer.ended = true;
            note_error(format("[%s] %s", name_of(peer).c_str(), message.text.c_str()));
            break;
        case Type::beat:
            if (s.standstill) s.standstill->note(peer.rank, message.text, now_seconds());
            break;
        case Type::ask_report: s.is_report_wanted = true; break;
        case Type::report:
            if (s.standstill) s.standstill->note_report(peer.rank, message.text);
            break;
        case Type::end: leave(std::atoi(message.text.c_str()));
        default: break;
    }
}

// elapsed: seconds since the last call.
void read_all(double elapsed) {
    State& s = state();
    std::vector<pollfd> wanted;
    for (const Peer& peer : s.peers) wanted.push_back({peer.ended ? -1 : peer.socket, POLLIN, 0});
    poll(wanted.data(), nfds_t(wanted.size()), 100);
    const std::lock_guard lock(s.mutex);
    for (size_t i = 0; i < wanted.size(); ++i) {
        Peer& peer = s.peers[i];
        if (peer.ended) continue;
        bool open = true;
        // A pause of this process, as by Ctrl-Z, is no silence of the others.
        peer.silence += std::min(elapsed, beat_interval);
        if (wanted[i].revents) {
            open = peer.inbox.read(peer.socket);
            peer.silence = 0;
            for (Message message; peer.inbox.next(&message);) handle(peer, message);
        }
        if (peer.inbox.is_damaged())
            lose(peer, "sent a message that is damaged");
        else if (!open)
            lose(peer, "ended without an error: it was killed, or its host or link failed");
        else if (peer.silence > s.limit)
            lose(peer, format("has been silent for %g s; NNLUA_HEARTBEAT=SECONDS sets this limit",
                              s.limit));
    }
}

// Rank 0.
void watch_for_standstill() {
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (!s.standstill || s.ending || !s.error.empty()) return;
    s.standstill->note(0, standstill::state(), now_seconds());
    const auto step = s.standstill->next(now_seconds());
    if (step == standstill::Watch::Step::end) note_error(s.standstill->error());
    if (step != standstill::Watch::Step::ask) return;
    s.is_report_wanted = true;
    send_to_all(Type::ask_report, "");
}

// Takes seconds, so without the mutex.
void report_if_wanted() {
    State& s = state();
    if (!std::exchange(s.is_report_wanted, false)) return;
    const std::string report = standstill::report();
    if (ranks().rank > 0) {
        send_to(s.peers[0], Type::report, report);
        return;
    }
    const std::lock_guard lock(s.mutex);
    s.standstill->note_report(0, report);
}

// The same error often comes from all ranks, and rank 0 then prints its own.
bool shall_end() {
    const std::lock_guard lock(state().mutex);
    return !state().error.empty() && !state().is_printed && !state().ending &&
           now_seconds() - state().error_since > seconds_for_own_error;
}

void run_thread() {
    double last_beat = 0, before = now_seconds();
    while (true) {
        const double now = now_seconds();
        if (now - last_beat > beat_interval) {
            last_beat = now;
            send_to_all(Type::beat, ranks().rank == 0 ? "" : standstill::state());
            watch::beat();
            watch_for_standstill();
        }
        delay(0.2);
        read_all(now - std::exchange(before, now));
        report_if_wanted();
        if (shall_end()) print_and_end(state().error);
    }
}

// What each rank tells the others through MPI before it can connect.
struct Card {
    char host[64];
    uint64_t key;
    sockets::Address address;
};

void accept_all(int listener, const std::vector<Card>& cards) {
    const double end = now_seconds() + seconds_to_start;
    const size_t others = cards.size() - 1;
    while (state().peers.size() < others) {
        const int socket = sockets::accept(listener, end - now_seconds());
        if (socket < 0)
            fail("%zu of %zu ranks connected to rank 0 within %g s", state().peers.size(), others,
                 seconds_to_start);
        sockets::Inbox inbox;
        Message hello;
        const double limit = now_seconds() + 5;
        while (!inbox.next(&hello) && !inbox.is_damaged() && now_seconds() < limit &&
               inbox.read(socket))
            usleep(1000);
        int rank = 0;
        unsigned long long key = 0;
        const bool is_ours = std::sscanf(hello.text.c_str(), "%d %llx", &rank, &key) == 2 &&
                             key == cards[0].key && rank > 0 && size_t(rank) < cards.size();
        if (!is_ours) {
            close(socket);  // not one of our ranks
            continue;
        }
        Peer& peer = state().peers.emplace_back();
        peer.rank = rank, peer.socket = socket, peer.host = cards[size_t(rank)].host;
        peer.inbox = std::move(inbox);
    }
    close(listener);
}

void connect_to_first(const std::vector<Card>& cards) {
    const Card& mine = cards[size_t(ranks().rank)];
    Peer& peer = state().peers.emplace_back();
    peer.host = cards[0].host;
    peer.socket = sockets::connect(cards[0].address, std::strcmp(mine.host, cards[0].host) == 0,
                                   seconds_to_start);
    if (peer.socket < 0)
        fail("rank %d on %s cannot connect to rank 0 on %s, port %d; a firewall may be between",
             ranks().rank, mine.host, cards[0].host, cards[0].address.port);
    if (!sockets::send(peer.socket, Type::hello,
                       format("%d %llx", ranks().rank, (unsigned long long)cards[0].key),
                       seconds_to_start))
        fail("%s broke the connection of rank %d", name_of(peer).c_str(), ranks().rank);
}

void compare(const std::vector<std::pair<std::string, std::string>>& identity) {
    for (const auto& [name, value] : identity) {
        const std::vector<std::string> all = gather(name, value, [] {});
        for (size_t rank = 1; rank < all.size(); ++rank)
            if (all[rank] != all[0])
                fail("the ranks differ in their %s: rank 0 has '%s', rank %zu has '%s'",
                     name.c_str(), all[0].c_str(), rank, all[rank].c_str());
    }
}

}  // namespace

std::string host_name() {
    char name[64] = "";
    gethostname(name, sizeof name - 1);
    return name;
}

bool started() { return state().is_started; }

void start(const std::vector<std::pair<std::string, std::string>>& identity) {
    State& s = state();
    s.limit = heartbeat_limit();
    Card mine{};
    std::snprintf(mine.host, sizeof mine.host, "%s", host_name().c_str());
    int listener = -1;
    if (ranks().rank == 0) {
        mine.key = (uint64_t(std::random_device()()) << 32) | std::random_device()();
        listener = sockets::listen(&mine.address);
    }
    if (ranks().rank == 0) watch::join();
    std::vector<Card> cards(size_t(ranks().count));
    transport::gather(&mine, cards.data(), int(sizeof mine));
    if (ranks().rank == 0) s.standstill.emplace(ranks().count, watchdog_limit());
    s.given.resize(cards.size());
    s.has_given.resize(cards.size());
    if (ranks().rank == 0)
        accept_all(listener, cards);
    else
        connect_to_first(cards);
    s.is_started = true;
    {
        const SignalsBlocked in_the_thread;
        new_thread(run_thread).detach();
    }
    compare(identity);
}

std::vector<std::string> gather(const std::string& what, const std::string& mine,
                                const std::function<void()>& wait) {
    State& s = state();
    const std::string text = sockets::packed({what, mine});
    const Waiting waiting("'" + what + "' of the other ranks");
    std::unique_lock lock(s.mutex);
    if (ranks().rank == 0)
        keep_value(0, text);
    else if (!send_to(s.peers[0], Type::value, text))
        fail("%s %s", name_of(s.peers[0]).c_str(),
             sockets::why_not_sent(text.size(), seconds_to_send).c_str());
    while (!s.complete) {
        s.changed.wait_for(lock, std::chrono::milliseconds(20));
        lock.unlock();
        wait();
        lock.lock();
    }
    s.complete = false;
    std::vector<std::string> out;
    for (size_t rank = 0; rank < s.gathered.size(); ++rank) {
        const std::vector<std::string> parts = sockets::unpacked(s.gathered[rank]);
        if (parts.size() != 2 || parts[0] != what)
            fail(
                "the ranks are at different points of the program: rank %d at '%s', rank %zu at "
                "'%s'. All ranks must run the same script with the same data",
                ranks().rank, what.c_str(), rank, parts.empty() ? "" : parts[0].c_str());
        out.push_back(parts[1]);
    }
    return out;
}

void fail_all(const std::string& text) {
    if (!started()) print_and_end(text);
    if (ranks().rank == 0)
        print_and_end(format("[rank 0 on %s] %s", host_name().c_str(), text.c_str()));
    if (!send_to_all(Type::error, text))
        std::fprintf(stderr, "nnlua: [rank %d on %s] %s\n", ranks().rank, host_name().c_str(),
                     text.c_str());
    for (double end = now_seconds() + seconds_to_end; now_seconds() < end;) usleep(10'000);
    leave(1);  // rank 0 normally ends this process before
}

void end_all(int code) {
    state().is_printed = true;
    if (started() && ranks().rank == 0) send_to_all(Type::end, std::to_string(code));
    leave(code);
}

void finish() {
    if (!started()) return;
    {
        const std::lock_guard lock(state().mutex);
        state().is_last = true;
    }
    gather("the end", "", [] {});
    watch::done();
}

}  // namespace nn::control
