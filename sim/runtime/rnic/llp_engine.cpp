// The LLP's side of a network engine: messages in place of stream sockets (sim/llp_messages.py).
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "llp.h"

namespace stagecoach {

namespace {
constexpr std::size_t kLongestMessage = 1u << 18;
}  // namespace

// Returns whether a message came.
bool SocketLlp::poll_engine(Cycle cycle) {
    bool happened = false;
    message_.resize(kLongestMessage);
    while (true) {
        const ssize_t got = ::recv(engine_, message_.data(), message_.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (got <= 0) throw std::runtime_error("the network engine has gone");
        take_message(message_.data(), static_cast<std::size_t>(got), cycle);
        happened = true;
    }
    tell_released();
    flush_engine();
    return happened;
}

void SocketLlp::tell() {
    if (engine_ < 0) return;
    if (detaching_) serve_detachments(0);
    tell_released();
    flush_engine();
}

void SocketLlp::take_message(const std::uint8_t* message, std::size_t octets, Cycle cycle) {
    MessageHeader header;
    if (octets < sizeof header) throw std::runtime_error("the network engine sent half a message");
    std::memcpy(&header, message, sizeof header);
    const unsigned number = header.connection;
    if (number >= connections_.size()) {
        throw std::runtime_error("the network engine sent a message for connection " +
                                 std::to_string(number));
    }
    const auto kind = static_cast<LlpMessage>(header.kind);
    if (kind == LlpMessage::kAttach) return attach_engine(number, header.value, cycle);
    Connection& connection = connections_[number];
    if (connection.phase != Phase::kAttached || !connection.of_engine) {
        // Only an end that was under way crosses the device's own.
        if (kind == LlpMessage::kDetach && connection.phase == Phase::kDetached) {
            post(LlpMessage::kDetached, number);
        }
        return;
    }
    switch (kind) {
        case LlpMessage::kData:
            take_octets(number, message + sizeof header, octets - sizeof header, cycle);
            break;
        case LlpMessage::kAcknowledged:
            // After a loss nothing is in the ring.
            if (!connection.broken) connection.sent = header.value;
            break;
        case LlpMessage::kEmss:
            connection.emss = static_cast<unsigned>(header.value);
            connection.emss_pending = true;
            break;
        case LlpMessage::kEnded:
            connection.ended = true;
            connection.broken = header.value != 0;
            if (connection.broken) connection.sent = connection.transmitted;
            recorder_.add(RecordKind::kClosed, number, connection.stream, cycle,
                          connection.received);
            break;
        case LlpMessage::kDetach:
            connection.phase = Phase::kDetaching;
            connection.deadline = Clock::time_point::max();
            connection.give_back = false;
            connection.done = nullptr;
            ++detaching_;
            serve_detachments(cycle);
            return;
        default:
            throw std::runtime_error("the network engine sent a message of kind " +
                                     std::to_string(header.kind));
    }
    queue_event(number);
}

void SocketLlp::attach_engine(unsigned number, std::uint64_t transmit_buffer, Cycle cycle) {
    Connection& connection = connections_[number];
    if (connection.phase == Phase::kDetaching) finish_detachment(number, false, cycle);
    if (connection.phase != Phase::kDetached) {
        throw std::runtime_error("the network engine attached connection " +
                                 std::to_string(number) + " twice");
    }
    Connection fresh;
    fresh.phase = Phase::kAttached;
    fresh.of_engine = true;
    fresh.transmit_buffer = transmit_buffer;
    fresh.stream = ++streams_;
    fresh.ring = std::make_unique<std::uint8_t[]>(kReceiveBuffer);
    fresh.event_queued = connection.event_queued;
    connection = std::move(fresh);
    ++sockets_;
    recorder_.add(RecordKind::kAttach, number, connection.stream, cycle, 0);
    queue_event(number);
}

void SocketLlp::take_octets(unsigned number, const std::uint8_t* octets, std::size_t count,
                            Cycle cycle) {
    Connection& connection = connections_[number];
    if (connection.received - connection.released + count > kReceiveBuffer) {
        throw std::runtime_error("the network engine sent more than the receive ring holds");
    }
    recorder_.add(RecordKind::kReceive, number, connection.stream, cycle, connection.received,
                  octets, count);
    const std::size_t start = connection.received & (kReceiveBuffer - 1);
    const std::size_t first = std::min<std::size_t>(count, kReceiveBuffer - start);
    std::memcpy(connection.ring.get() + start, octets, first);
    std::memcpy(connection.ring.get(), octets + first, count - first);
    connection.received += count;
    connection.counters.rx_octets += count;
    count_fpdus(connection);
}

void SocketLlp::post(LlpMessage kind, unsigned number, std::uint64_t value,
                     const std::vector<std::uint8_t>& octets) {
    const MessageHeader header{static_cast<std::uint32_t>(kind), number, value};
    std::vector<std::uint8_t> message(sizeof header + octets.size());
    std::memcpy(message.data(), &header, sizeof header);
    std::copy(octets.begin(), octets.end(), message.begin() + sizeof header);
    posted_.push_back(std::move(message));
    flush_engine();
}

void SocketLlp::tell_released() {
    for (const unsigned number : releases_) {
        Connection& connection = connections_[number];
        if (connection.phase == Phase::kDetached || !connection.of_engine) continue;
        if (connection.released == connection.released_told) continue;
        connection.released_told = connection.released;
        post(LlpMessage::kReleased, number, connection.released);
    }
    releases_.clear();
}

void SocketLlp::flush_engine() {
    while (!posted_.empty()) {
        const std::vector<std::uint8_t>& message = posted_.front();
        const ssize_t sent =
            ::send(engine_, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK) posted_.clear();  // the next recv() tells
            break;
        }
        posted_.pop_front();
    }
    watch_engine();
}

void SocketLlp::watch_engine() {
    if (engine_writable_wanted_ == !posted_.empty()) return;
    engine_writable_wanted_ = !posted_.empty();
    epoll_event event{};
    event.events = engine_writable_wanted_ ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.u32 = kEngine;
    if (epoll_ctl(epoll_, EPOLL_CTL_MOD, engine_, &event) != 0) {
        throw std::system_error(errno, std::generic_category(), "epoll_ctl on the engine's socket");
    }
}

}  // namespace stagecoach
