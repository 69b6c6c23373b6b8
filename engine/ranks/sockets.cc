#include "engine/ranks/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/clock.h"
#include "engine/base/error.h"

namespace nn::sockets {
namespace {

struct Header {
    uint32_t type, bytes;
};

bool wait_until_ready(int socket, short event, double seconds) {
    pollfd one{socket, event, 0};
    return poll(&one, 1, int(std::max(0.0, seconds) * 1000)) > 0;
}

sockaddr_in endpoint(uint32_t host, uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_addr.s_addr = host;
    out.sin_port = htons(port);
    return out;
}

int new_socket() {
    const int out = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (out < 0) fail("the system gives no socket for the ranks (%s)", std::strerror(errno));
    const int on = 1;
    setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return out;
}

int connect_to(uint32_t host, uint16_t port, double seconds) {
    const int out = new_socket();
    const sockaddr_in to = endpoint(host, port);
    int status = ::connect(out, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (status != 0 && errno == EINPROGRESS && wait_until_ready(out, POLLOUT, seconds)) {
        int problem = 0;
        socklen_t size = sizeof problem;
        getsockopt(out, SOL_SOCKET, SO_ERROR, &problem, &size);
        status = problem;
    }
    if (status == 0) return out;
    close(out);
    return -1;
}

}  // namespace

int listen(Address* address) {
    const int out = new_socket();
    sockaddr_in at = endpoint(htonl(INADDR_ANY), 0);
    socklen_t size = sizeof at;
    if (bind(out, reinterpret_cast<sockaddr*>(&at), size) != 0 || ::listen(out, SOMAXCONN) != 0 ||
        getsockname(out, reinterpret_cast<sockaddr*>(&at), &size) != 0)
        fail("the system does not let nnlua listen for ranks (%s)", std::strerror(errno));
    address->port = ntohs(at.sin_port);
    ifaddrs* all = nullptr;
    size_t known = 0;
    if (getifaddrs(&all) != 0) return out;
    for (const ifaddrs* one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
        const uint32_t host = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr;
        if (ntohl(host) >> 24 != 127 && known < std::size(address->hosts))
            address->hosts[known++] = host;
    }
    freeifaddrs(all);
    return out;
}

int connect(const Address& address, bool on_same_host, double seconds) {
    if (on_same_host)
        if (const int out = connect_to(htonl(INADDR_LOOPBACK), address.port, 1); out >= 0)
            return out;
    const double end = now_seconds() + seconds;
    do {
        for (uint32_t host : address.hosts) {
            if (host == 0) continue;
            const double left = std::max(0.0, end - now_seconds());
            if (const int out = connect_to(host, address.port, std::min(2.0, left)); out >= 0)
                return out;
        }
        usleep(100'000);
    } while (now_seconds() < end);
    return -1;
}

int accept(int listener, double seconds) {
    if (!wait_until_ready(listener, POLLIN, seconds)) return -1;
    const int out = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const int on = 1;
    if (out >= 0) setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return out;
}

bool send(int socket, Type type, const std::string& text, double seconds) {
    if (text.size() > most_bytes) return false;
    const Header header{uint32_t(type), uint32_t(text.size())};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes += text;
    double end = now_seconds() + seconds;
    size_t sent = 0;
    while (sent < bytes.size()) {
        const ssize_t n = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (n > 0)
            sent += size_t(n), end = now_seconds() + seconds;
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            break;
        else if (!wait_until_ready(socket, POLLOUT, end - now_seconds()) && now_seconds() >= end)
            break;
    }
    if (sent > 0 && sent < bytes.size()) shutdown(socket, SHUT_RDWR);
    return sent == bytes.size();
}

std::string why_not_sent(size_t bytes, double seconds) {
    if (bytes > most_bytes)
        return format("cannot take values of %s, which is more than %s",
                      human_bytes(double(bytes)).c_str(), human_bytes(double(most_bytes)).c_str());
    return format("took no value for %g s, or its link failed", seconds);
}

std::string packed(const std::vector<std::string>& texts) {
    std::string out;
    for (const std::string& text : texts) {
        const uint64_t bytes = text.size();
        out.append(reinterpret_cast<const char*>(&bytes), sizeof bytes).append(text);
    }
    return out;
}

std::vector<std::string> unpacked(const std::string& text) {
    std::vector<std::string> out;
    for (size_t at = 0; at + sizeof(uint64_t) <= text.size();) {
        uint64_t bytes;
        std::memcpy(&bytes, text.data() + at, sizeof bytes);
        at += sizeof bytes;
        out.push_back(text.substr(at, bytes));
        at += bytes;
    }
    return out;
}

bool Inbox::read(int socket) {
    char buffer[4096];
    while (true) {
        const ssize_t n = recv(socket, buffer, sizeof buffer, 0);
        if (n > 0)
            bytes_.append(buffer, size_t(n));
        else if (n < 0 && errno == EINTR)
            continue;
        else
            return n < 0 && errno == EAGAIN;
    }
}

bool Inbox::next(Message* message) {
    Header header;
    if (bytes_.size() < sizeof header) return false;
    std::memcpy(&header, bytes_.data(), sizeof header);
    damaged_ = damaged_ || header.bytes > most_bytes || header.type > uint32_t(Type::end);
    if (damaged_ || bytes_.size() < sizeof header + header.bytes) return false;
    *message = {Type(header.type), bytes_.substr(sizeof header, header.bytes)};
    bytes_.erase(0, sizeof header + header.bytes);
    return true;
}

}  // namespace nn::sockets
