// The sockets' side of the LLP: receiving, sending, windows, attachments.
#include "llp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <system_error>

namespace stagecoach {

namespace {
constexpr double kLingerSeconds = 2.0;

SocketLlp::Clock::time_point in_seconds(double seconds) {
    return SocketLlp::Clock::now() + std::chrono::duration_cast<SocketLlp::Clock::duration>(
                                         std::chrono::duration<double>(seconds));
}

// Octets that the peer's TCP has not acknowledged yet.
int unacknowledged(int descriptor) {
    int octets = 0;
    return ioctl(descriptor, SIOCOUTQ, &octets) == 0 ? octets : 0;
}
}  // namespace

SocketLlp::SocketLlp(const Settings& settings, int wake_descriptor, Recorder& recorder,
                     Faults& faults)
    : connections_(settings.connections),
      recorder_(recorder),
      faults_(faults),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(wake_descriptor),
      engine_(settings.network) {
    if (epoll_ < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = kNobody;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) {
        const int error = errno;
        ::close(epoll_);
        throw std::system_error(error, std::generic_category(), "epoll_ctl");
    }
    if (engine_ >= 0) {
        event.data.u32 = kEngine;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, engine_, &event) != 0) {
            const int error = errno;
            ::close(epoll_);
            throw std::system_error(error, std::generic_category(), "epoll_ctl");
        }
    }
    fpdu_.reserve(kLongestFpdu);
}

SocketLlp::~SocketLlp() {
    for (const Connection& connection : connections_) {
        if (connection.descriptor >= 0) ::close(connection.descriptor);
    }
    for (const Lingering& socket : lingering_) ::close(socket.descriptor);
    if (engine_ >= 0) ::close(engine_);
    ::close(epoll_);
}

void SocketLlp::attach(unsigned number, int descriptor, unsigned emss, Cycle cycle) {
    if (number >= connections_.size()) {
        throw std::invalid_argument("connection is " + std::to_string(number) +
                                    "; allowed: 0 to " + std::to_string(connections_.size() - 1));
    }
    Connection& connection = connections_[number];
    if (connection.phase != Phase::kDetached) {
        throw std::invalid_argument("connection " + std::to_string(number) +
                                    " has a stream already; detach it first");
    }
    const int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on a socketpair
    Connection fresh;
    fresh.phase = Phase::kAttached;
    fresh.descriptor = descriptor;
    fresh.stream = ++streams_;
    fresh.ring = std::make_unique<std::uint8_t[]>(kReceiveBuffer);
    fresh.emss = emss;
    fresh.emss_pending = emss != 0;
    fresh.event_queued = connection.event_queued;
    connection = std::move(fresh);
    ++sockets_;
    recorder_.add(RecordKind::kAttach, number, connection.stream, cycle, 0);
    watch(number);
    queue_event(number);
}

void SocketLlp::detach(unsigned number, double seconds, bool give_back, Cycle cycle,
                       Detached done) {
    if (number >= connections_.size()) {
        throw std::invalid_argument("connection is " + std::to_string(number) +
                                    "; allowed: 0 to " + std::to_string(connections_.size() - 1));
    }
    Connection& connection = connections_[number];
    if (connection.phase != Phase::kAttached) {
        throw std::invalid_argument("connection " + std::to_string(number) + " has no stream");
    }
    connection.phase = Phase::kDetaching;
    connection.deadline = in_seconds(seconds);
    connection.give_back = give_back;
    connection.done = std::move(done);
    ++detaching_;
    watch(number);
    serve_detachments(cycle);
}

// Tells epoll what the connection waits for. Nothing is watched that nobody would act upon, so that
// a level-triggered report never repeats.
void SocketLlp::watch(unsigned number) {
    Connection& connection = connections_[number];
    if (connection.descriptor < 0) return;
    std::uint32_t wanted = 0;
    const bool room = connection.received - connection.released < kReceiveBuffer;
    if (connection.phase == Phase::kAttached && !connection.ended && room) wanted |= EPOLLIN;
    if (!connection.backlog.empty()) wanted |= EPOLLOUT;
    if (wanted == connection.interest) return;
    epoll_event event{};
    event.events = wanted;
    event.data.u32 = number;
    const int operation = wanted == 0                ? EPOLL_CTL_DEL
                          : connection.interest == 0 ? EPOLL_CTL_ADD
                                                     : EPOLL_CTL_MOD;
    if (epoll_ctl(epoll_, operation, connection.descriptor, &event) != 0) {
        throw std::system_error(errno, std::generic_category(), "epoll_ctl on an LLP socket");
    }
    connection.interest = wanted;
}

bool SocketLlp::poll(int milliseconds, Cycle cycle) {
    epoll_event events[64];
    const int count = epoll_wait(epoll_, events, 64, milliseconds);
    bool happened = false;
    for (int i = 0; i < count; ++i) {
        const std::uint32_t number = events[i].data.u32;
        happened = true;
        if (number == kNobody) {
            std::uint64_t wakes;
            if (read(wake_, &wakes, sizeof wakes) < 0) continue;
            continue;
        }
        if (number == kEngine) continue;
        if (connections_[number].interest & EPOLLOUT) flush(number);
        if (connections_[number].interest & EPOLLIN) receive(number, cycle);
    }
    if (engine_ >= 0) happened |= poll_engine(cycle);
    if (detaching_) serve_detachments(cycle);
    if (!lingering_.empty()) serve_lingering(false);
    return happened;
}

int SocketLlp::next_deadline() const {
    if (!lingering_.empty()) return 20;  // these few sockets are looked at by turns
    if (detaching_ == 0) return -1;
    auto soonest = Clock::time_point::max();
    for (const Connection& connection : connections_) {
        if (connection.phase == Phase::kDetaching) soonest = std::min(soonest, connection.deadline);
    }
    if (soonest == Clock::time_point::max()) return -1;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(soonest - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(0, left.count())) + 1;
}

void SocketLlp::receive(unsigned number, Cycle cycle) {
    Connection& connection = connections_[number];
    const std::uint64_t room = kReceiveBuffer - (connection.received - connection.released);
    if (room == 0 || connection.ended) return;
    const std::uint64_t start = connection.received & (kReceiveBuffer - 1);
    iovec parts[2];
    parts[0].iov_base = connection.ring.get() + start;
    parts[0].iov_len = std::min(room, kReceiveBuffer - start);
    parts[1].iov_base = connection.ring.get();
    parts[1].iov_len = room - parts[0].iov_len;
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = parts[1].iov_len ? 2 : 1;
    const ssize_t got = recvmsg(connection.descriptor, &message, MSG_DONTWAIT);
    if (got > 0) {
        const auto octets = static_cast<std::size_t>(got);
        const std::size_t first = std::min(octets, parts[0].iov_len);
        recorder_.add(RecordKind::kReceive, number, connection.stream, cycle, connection.received,
                      connection.ring.get() + start, first);
        if (octets > first) {
            recorder_.add(RecordKind::kReceive, number, connection.stream, cycle,
                          connection.received + first, connection.ring.get(), octets - first);
        }
        connection.received += octets;
        connection.counters.rx_octets += octets;
        count_fpdus(connection);
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        connection.ended = true;
        recorder_.add(RecordKind::kClosed, number, connection.stream, cycle, connection.received);
    }
    watch(number);
    queue_event(number);
}

// Follows ULPDU_Length from FPDU to FPDU (RFC 5044, 4.1; no Markers), for the statistics only.
void SocketLlp::count_fpdus(Connection& connection) {
    while (connection.next_fpdu + 2 <= connection.received) {
        const auto octet = [&](std::uint64_t position) -> unsigned {
            return connection.ring[position & (kReceiveBuffer - 1)];
        };
        const unsigned ulpdu = octet(connection.next_fpdu) << 8 | octet(connection.next_fpdu + 1);
        const std::uint64_t end = connection.next_fpdu + ((2 + ulpdu + 3) & ~3u) + 4;
        if (end > connection.received) return;
        connection.next_fpdu = end;
        ++connection.counters.rx_fpdus;
    }
}

void SocketLlp::discard_backlog(Connection& connection) {
    connection.backlog.clear();
    connection.backlog_offset = 0;
    connection.sent = connection.transmitted;
}

// One send() per FPDU, so that TCP segments start with FPDUs whenever the kernel takes them whole.
void SocketLlp::flush(unsigned number) {
    Connection& connection = connections_[number];
    if (connection.of_engine) {
        for (const std::vector<std::uint8_t>& fpdu : connection.backlog) {
            post(LlpMessage::kFpdu, number, 0, fpdu);
        }
        connection.backlog.clear();
        if (connection.closing) post(LlpMessage::kClose, number);
        return;
    }
    while (!connection.backlog.empty()) {
        const std::vector<std::uint8_t>& fpdu = connection.backlog.front();
        const ssize_t taken = ::send(connection.descriptor, fpdu.data() + connection.backlog_offset,
                                     fpdu.size() - connection.backlog_offset,
                                     MSG_DONTWAIT | MSG_NOSIGNAL);
        if (taken < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                connection.broken = true;
                discard_backlog(connection);
            }
            break;
        }
        connection.sent += static_cast<std::uint64_t>(taken);
        connection.backlog_offset += static_cast<std::size_t>(taken);
        if (connection.backlog_offset == fpdu.size()) {
            connection.backlog.pop_front();
            connection.backlog_offset = 0;
        }
    }
    if (connection.closing && connection.backlog.empty() && !connection.broken) {
        ::shutdown(connection.descriptor, SHUT_WR);
    }
    watch(number);
    queue_event(number);
}

void SocketLlp::finish_fpdu(bool close, Cycle cycle) {
    Connection& connection = connections_[fpdu_connection_];
    if (connection.phase == Phase::kDetached) return;
    if (connection.closing) {
        faults_.add(cycle, "LLP tx: connection " + std::to_string(fpdu_connection_) +
                               " sends after its request to close");
    }
    connection.closing |= close;
    if (fpdu_.empty()) {
        if (connection.backlog.empty()) flush(fpdu_connection_);
        return;
    }
    recorder_.add(RecordKind::kTransmit, fpdu_connection_, connection.stream, cycle,
                  connection.transmitted, fpdu_.data(), fpdu_.size());
    connection.transmitted += fpdu_.size();
    ++connection.counters.tx_fpdus;
    connection.counters.tx_octets += fpdu_.size();
    if (connection.transmitted > connection.granted + (close ? kCloseOctets : 0)) {
        faults_.add(cycle, "LLP tx: connection " + std::to_string(fpdu_connection_) +
                               " sent up to position " + std::to_string(connection.transmitted) +
                               "; the window ends at " + std::to_string(connection.granted));
    }
    if (connection.broken) {
        connection.sent = connection.transmitted;
        queue_event(fpdu_connection_);
        return;
    }
    connection.backlog.push_back(fpdu_);
    if (connection.backlog.size() == 1) flush(fpdu_connection_);
}

void SocketLlp::lose_after(unsigned number, std::uint64_t octets) {
    if (number >= connections_.size() || connections_[number].phase != Phase::kAttached) {
        throw std::invalid_argument("connection " + std::to_string(number) + " has no stream");
    }
    connections_[number].lost_after = octets;
}

void SocketLlp::lose(unsigned number, Cycle cycle) {
    Connection& connection = connections_[number];
    connection.lost_after = ~0ull;
    connection.ended = true;
    connection.broken = true;
    discard_backlog(connection);
    ::shutdown(connection.descriptor, SHUT_RDWR);
    recorder_.add(RecordKind::kClosed, number, connection.stream, cycle, connection.received);
    watch(number);
    queue_event(number);
}

bool SocketLlp::event_due(const Connection& connection) const {
    if (connection.phase != Phase::kAttached) return false;
    return !connection.window_announced ||
           connection.sent + connection.transmit_buffer - connection.granted >=
               connection.transmit_buffer / kWindowSteps ||
           connection.emss_pending || connection.received != connection.announced ||
           (connection.ended && !connection.closed_announced);
}

void SocketLlp::queue_event(unsigned number) {
    Connection& connection = connections_[number];
    if (connection.event_queued || !event_due(connection)) return;
    connection.event_queued = true;
    event_queue_.push_back(number);
}

// Makes the next event from what its connection has to say now; CLOSED is always the last.
void SocketLlp::next_event() {
    while (!event_valid_ && !event_queue_.empty()) {
        const unsigned number = event_queue_.front();
        event_queue_.pop_front();
        Connection& connection = connections_[number];
        connection.event_queued = false;
        if (!event_due(connection)) continue;
        const std::uint64_t window = connection.sent + connection.transmit_buffer;
        const std::uint64_t step = connection.transmit_buffer / kWindowSteps;
        std::uint64_t value = 0;
        if (!connection.window_announced || window - connection.granted >= step) {
            event_kind_ = LlpEventKind::kTxWindow;
            value = connection.granted = window;
            connection.window_announced = true;
        } else if (connection.emss_pending) {
            event_kind_ = LlpEventKind::kEmss;
            value = connection.emss;
            connection.emss_pending = false;
        } else if (connection.received != connection.announced) {
            event_kind_ = LlpEventKind::kRxAvailable;
            value = connection.announced = connection.received;
        } else {
            event_kind_ = LlpEventKind::kClosed;
            connection.closed_announced = true;
        }
        event_connection_ = number;
        event_value_ = static_cast<std::uint32_t>(value);
        event_valid_ = true;
        queue_event(number);
    }
}

void SocketLlp::serve_detachments(Cycle cycle) {
    for (unsigned number = 0; detaching_ && number < connections_.size(); ++number) {
        Connection& connection = connections_[number];
        if (connection.phase != Phase::kDetaching) continue;
        // Events and FPDUs on their way belong to this attachment, not to the next one.
        const bool quiet = !(in_fpdu_ && fpdu_connection_ == number) &&
                           !(event_valid_ && event_connection_ == number);
        const bool late = Clock::now() >= connection.deadline;
        if (!late && !(quiet && connection.backlog.empty())) continue;
        finish_detachment(number, connection.backlog.empty() && !connection.broken, cycle);
    }
}

void SocketLlp::finish_detachment(unsigned number, bool flushed, Cycle cycle) {
    Connection& connection = connections_[number];
    recorder_.add(RecordKind::kDetach, number, connection.stream, cycle, connection.transmitted);
    discard_backlog(connection);
    const int descriptor = connection.descriptor;
    if (connection.interest) epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr);
    connection.interest = 0;
    connection.descriptor = -1;
    connection.phase = Phase::kDetached;
    connection.ring.reset();
    --sockets_;
    --detaching_;
    if (connection.of_engine) {
        post(LlpMessage::kDetached, number);
        return;
    }
    int returned = -1;
    if (connection.give_back) {
        returned = descriptor;
    } else {
        ::shutdown(descriptor, SHUT_WR);
        lingering_.push_back({descriptor, in_seconds(kLingerSeconds)});
        serve_lingering(false);
    }
    const Detached done = std::move(connection.done);
    connection.done = nullptr;
    if (done) done(flushed, returned);
}

// `draining`: the device is closing, and only what was sent still matters.
void SocketLlp::serve_lingering(bool draining) {
    const auto now = Clock::now();
    std::size_t kept = 0;
    for (const Lingering& socket : lingering_) {
        std::uint8_t dropped[16384];
        ssize_t got;
        do {
            got = ::recv(socket.descriptor, dropped, sizeof dropped, MSG_DONTWAIT);
        } while (got > 0 || (got < 0 && errno == EINTR));
        const bool open = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        const bool owed = !draining || unacknowledged(socket.descriptor) > 0;
        if (open && owed && now < socket.deadline) {
            lingering_[kept++] = socket;
        } else {
            ::close(socket.descriptor);
        }
    }
    lingering_.resize(kept);
}

void SocketLlp::close_all(double seconds, Cycle cycle) {
    in_fpdu_ = false;
    event_valid_ = false;
    const auto deadline = in_seconds(seconds);
    for (unsigned number = 0; number < connections_.size(); ++number) {
        Connection& connection = connections_[number];
        if (connection.phase == Phase::kAttached) detach(number, seconds, false, cycle, nullptr);
        if (connection.phase == Phase::kDetaching) {
            connection.deadline = std::min(connection.deadline, deadline);
        }
    }
    for (Lingering& socket : lingering_) socket.deadline = std::min(socket.deadline, deadline);
    while (detaching_ || !lingering_.empty()) {
        poll(1, cycle);
        for (Lingering& socket : lingering_) socket.deadline = std::min(socket.deadline, deadline);
        serve_lingering(true);
    }
}

void SocketLlp::drive(Vrnic& model, Cycle cycle) {
    model.PORT(llp, tx_ready) = !transmit_held_;
    model.PORT(llp, rx_release_ready) = 1;
    model.PORT(llp, rx_request_ready) = requests_.size() < kRequests;
    if (!event_valid_ && !event_queue_.empty()) next_event();
    model.PORT(llp, event_valid) = event_valid_;
    if (event_valid_) {
        model.PORT(llp, event_connection) = event_connection_;
        model.PORT(llp, event_kind) = static_cast<unsigned>(event_kind_);
        model.PORT(llp, event_value) = event_value_;
    }
    if (!answer_valid_ && !requests_.empty() && requests_.front().ready <= cycle) {
        answer_data_ = read_octets(requests_.front());
        answer_valid_ = true;
    }
    model.PORT(llp, rx_valid) = answer_valid_;
    if (answer_valid_) write_port(model.PORT(llp, rx_data), answer_data_);
}

// The next beat of an answer; zeros where the connection has no such octets any more.
Data SocketLlp::read_octets(const Request& request) const {
    const Connection& connection = connections_[request.connection];
    Data data;
    if (!connection.ring || connection.stream != request.stream) return data;
    const unsigned count = std::min(kDataOctets, request.octets);
    const std::uint64_t start = request.position & (kReceiveBuffer - 1);
    auto* octets = reinterpret_cast<std::uint8_t*>(data.words);
    if (start + count <= kReceiveBuffer) {
        std::memcpy(octets, connection.ring.get() + start, count);
    } else {
        for (unsigned i = 0; i < count; ++i) {
            octets[i] = connection.ring[(start + i) & (kReceiveBuffer - 1)];
        }
    }
    return data;
}

void SocketLlp::sample(const Vrnic& model, Cycle cycle) {
    if (event_valid_ && model.PORT(llp, event_ready)) event_valid_ = false;

    if (answer_valid_ && model.PORT(llp, rx_ready)) {
        answer_valid_ = false;
        Request& request = requests_.front();
        Counters& counters = connections_[request.connection].counters;
        if (counters.rx_beats++ == 0) counters.rx_first_cycle = cycle;
        counters.rx_last_cycle = cycle;
        request.position += kDataOctets;
        if (request.octets <= kDataOctets) {
            requests_.pop_front();
        } else {
            request.octets -= kDataOctets;
        }
    }

    if (model.PORT(llp, rx_request_valid) && model.PORT(llp, rx_request_ready)) {
        const unsigned number = model.PORT(llp, rx_request_connection);
        const std::uint32_t position = model.PORT(llp, rx_request_position);
        const unsigned octets = model.PORT(llp, rx_request_octets);
        Connection& connection = connections_.at(number);
        ++connection.counters.rx_requests;
        const std::uint64_t absolute =
            connection.released + (position - static_cast<std::uint32_t>(connection.released));
        if (connection.phase == Phase::kAttached && absolute + octets > connection.announced) {
            faults_.add(cycle, "LLP rx: connection " + std::to_string(number) + " asked for " +
                                   std::to_string(octets) + " octets from position " +
                                   std::to_string(position) + "; allowed: from " +
                                   std::to_string(connection.released) + " to " +
                                   std::to_string(connection.announced));
        }
        if (octets == 0 || position % 4 != 0) {
            faults_.add(cycle, "LLP rx: request for " + std::to_string(octets) +
                                   " octets from position " + std::to_string(position) +
                                   "; positions are multiples of 4, octets at least 1");
        }
        // An attachment that ended between request and answer is answered with zeros.
        if (octets) {
            requests_.push_back(
                {number, connection.stream, absolute, octets, cycle + kAnswerLatency});
        }
    }

    if (model.PORT(llp, rx_release_valid) && model.PORT(llp, rx_release_ready)) {
        const unsigned number = model.PORT(llp, rx_release_connection);
        const std::uint32_t position = model.PORT(llp, rx_release_position);
        Connection& connection = connections_.at(number);
        const std::uint32_t freed = position - static_cast<std::uint32_t>(connection.released);
        if (connection.phase != Phase::kDetached && freed < 0x80000000u) {
            if (connection.released + freed > connection.announced) {
                faults_.add(cycle, "LLP rx: connection " + std::to_string(number) +
                                       " released up to " + std::to_string(position) +
                                       "; announced is " + std::to_string(connection.announced));
            } else {
                connection.released += freed;
                if (connection.of_engine && connection.released_told != connection.released) {
                    releases_.push_back(number);
                }
                watch(number);
            }
        }
    }

    if (model.PORT(llp, tx_valid) && model.PORT(llp, tx_ready)) {
        const unsigned number = model.PORT(llp, tx_connection);
        const unsigned octets = model.PORT(llp, tx_octets);
        const bool first = model.PORT(llp, tx_first), last = model.PORT(llp, tx_last);
        const bool close = model.PORT(llp, tx_close);
        if (first == in_fpdu_ || (in_fpdu_ && number != fpdu_connection_)) {
            faults_.add(cycle, "LLP tx: FPDUs of connections " + std::to_string(fpdu_connection_) +
                                   " and " + std::to_string(number) + " are not whole");
        }
        const bool partial = last && octets < kDataOctets && octets % 4 == 0;
        const bool whole = octets == kDataOctets || (partial && octets != 0);
        if (!whole && !(first && last && close && octets == 0)) {
            faults_.add(cycle, "LLP tx: beat of " + std::to_string(octets) + " octets; allowed: " +
                                   std::to_string(kDataOctets) +
                                   ", on the last beat a multiple of 4 up to that, or 0 for a "
                                   "close alone");
        }
        if (close && !last) faults_.add(cycle, "LLP tx: close before the last beat");
        Connection& connection = connections_.at(number);
        if (first) {
            fpdu_.clear();
            fpdu_connection_ = number;
        }
        in_fpdu_ = true;
        Counters& counters = connection.counters;
        if (counters.tx_beats++ == 0) counters.tx_first_cycle = cycle;
        counters.tx_last_cycle = cycle;
        if (fpdu_.size() < kLongestFpdu) {
            const Data data = read_port(model.PORT(llp, tx_data));
            const auto* raw = reinterpret_cast<const std::uint8_t*>(data.words);
            fpdu_.insert(fpdu_.end(), raw, raw + std::min(kDataOctets, octets));
        }
        if (connection.phase == Phase::kAttached &&
            connection.transmitted + fpdu_.size() >= connection.lost_after) {
            lose(number, cycle);
        }
        if (last) {
            in_fpdu_ = false;
            finish_fpdu(close, cycle);
        }
    }
}

std::string SocketLlp::statistics() const {
    std::string text = "\"connections\":[";
    bool first = true;
    for (unsigned number = 0; number < connections_.size(); ++number) {
        if (connections_[number].stream == 0) continue;
        text += (first ? "" : ",") + statistics(number);
        first = false;
    }
    return text + "]";
}

std::string SocketLlp::statistics(unsigned number) const {
    const Connection& connection = connections_.at(number);
    const Counters& c = connection.counters;
    const auto field = [](const char* name, std::uint64_t value) {
        return std::string("\"") + name + "\":" + std::to_string(value);
    };
    return "{" + field("connection", number) + "," + field("stream", connection.stream) + "," +
           field("attached", connection.phase == Phase::kAttached) + "," +
           field("tx_fpdus", c.tx_fpdus) + "," + field("tx_octets", c.tx_octets) + "," +
           field("tx_beats", c.tx_beats) + "," + field("tx_first_cycle", c.tx_first_cycle) + "," +
           field("tx_last_cycle", c.tx_last_cycle) + "," + field("rx_fpdus", c.rx_fpdus) + "," +
           field("rx_octets", c.rx_octets) + "," + field("rx_beats", c.rx_beats) + "," +
           field("rx_requests", c.rx_requests) + "," +
           field("rx_first_cycle", c.rx_first_cycle) + "," +
           field("rx_last_cycle", c.rx_last_cycle) + "," +
           field("rx_announced", connection.announced) + "," +
           field("rx_released", connection.released) + "," +
           field("tx_granted", connection.granted) + "}";
}

}  // namespace stagecoach
