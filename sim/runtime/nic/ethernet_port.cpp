// Frames between a socket and the AXI4-Stream ports, one word in each cycle.
#include "ethernet_port.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <stdexcept>

namespace stagecoach {

namespace {
constexpr std::size_t kWordOctetsOfFrame = 8;
constexpr std::uint64_t kPicosecondsPerMicrosecond = 1000000;
constexpr std::int64_t kNanosecondsPerMicrosecond = 1000;
constexpr std::int64_t kNanosecondsPerSecond = 1000000000;
}  // namespace

EthernetPort::EthernetPort(const Settings& settings, int wake_descriptor, Recorder&,
                           Faults& faults)
    : socket_(settings.network),
      wake_(wake_descriptor),
      paced_(settings.paced),
      clock_offset_ns_(settings.clock_offset_ns),
      faults_(faults) {
    if (socket_ < 0) throw std::invalid_argument("a NIC needs a socket for its frames");
    if (settings.record) {
        throw std::invalid_argument("a NIC has no LLP port to record; capture its frames instead");
    }
    if (!paced_) time_us_ = clock_us();
}

EthernetPort::~EthernetPort() { ::close(socket_); }

void EthernetPort::refuse() {
    throw std::invalid_argument("a NIC has no LLP port; its network opens connections");
}

std::uint64_t EthernetPort::clock_us() const {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const std::int64_t nanoseconds =
        now.tv_sec * kNanosecondsPerSecond + now.tv_nsec + clock_offset_ns_;
    return static_cast<std::uint64_t>(nanoseconds / kNanosecondsPerMicrosecond);
}

void EthernetPort::begin(std::uint64_t time_ps, Cycle cycle) {
    begin_ps_ = time_ps;
    begin_cycle_ = cycle;
    time_us_ = time_ps / kPicosecondsPerMicrosecond;
}

std::uint64_t EthernetPort::due_us() const {
    if (!armed_) return kNever;
    const auto left = static_cast<std::int32_t>(deadline_ - static_cast<std::uint32_t>(time_us_));
    return left <= 0 ? time_us_ : time_us_ + static_cast<std::uint32_t>(left);
}

bool EthernetPort::poll(int, Cycle) {
    if (!paced_) time_us_ = clock_us();
    flush();
    return receive();
}

bool EthernetPort::rest(Cycle cycle) {
    timespec left{}, *until = nullptr;
    if (const std::uint64_t due = due_us(); due != kNever) {
        const std::uint64_t now = clock_us();
        const std::uint64_t wait = due > now ? due - now : 0;
        left.tv_sec = static_cast<time_t>(wait / 1000000);
        left.tv_nsec = static_cast<long>(wait % 1000000 * kNanosecondsPerMicrosecond);
        until = &left;
    }
    const short events = posted_.empty() ? POLLIN : POLLIN | POLLOUT;
    pollfd watched[2] = {{wake_, POLLIN, 0}, {socket_, events, 0}};
    ::ppoll(watched, 2, until, nullptr);
    std::uint64_t wakes;
    const bool woken = ::read(wake_, &wakes, sizeof wakes) > 0;
    return poll(0, cycle) || woken || due_us() <= time_us_;
}

// Returns whether a frame came.
bool EthernetPort::receive() {
    bool came = false;
    while (frames_octets_ < kQueued) {
        std::vector<std::uint8_t> frame(kLongestFrame);
        const ssize_t got = ::recv(socket_, frame.data(), frame.size(), MSG_DONTWAIT | MSG_TRUNC);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (got <= 0) throw std::runtime_error("the wire has gone");
        const auto octets = static_cast<std::size_t>(got);
        if (octets > kLongestFrame) {
            throw std::runtime_error("the wire sent a frame of " + std::to_string(octets) +
                                     " bytes; allowed: 1 to " + std::to_string(kLongestFrame));
        }
        frame.resize(octets);
        frames_octets_ += octets;
        frames_.push_back(std::move(frame));
        came = true;
    }
    return came;
}

void EthernetPort::flush() {
    while (!posted_.empty()) {
        const std::vector<std::uint8_t>& frame = posted_.front();
        const ssize_t sent =
            ::send(socket_, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        posted_octets_ -= frame.size();  // if the other end has gone, the next recv() tells
        posted_.pop_front();
    }
}

void EthernetPort::drive(Vrnic& model, Cycle cycle) {
    if (paced_) {
        time_us_ =
            (begin_ps_ + (cycle - begin_cycle_) * kCyclePs) / kPicosecondsPerMicrosecond;
    }
    model.time_us = static_cast<std::uint32_t>(time_us_);

    if (!word_valid_ && !frames_.empty() && (position_ != 0 || receive_line_.free(cycle))) {
        const std::vector<std::uint8_t>& frame = frames_.front();
        if (position_ == 0) receive_line_.take(cycle, frame.size());
        const std::size_t octets = std::min(kWordOctetsOfFrame, frame.size() - position_);
        std::uint64_t word = 0;
        std::memcpy(&word, frame.data() + position_, octets);
        model.PORT(rx, tdata) = word;
        model.PORT(rx, tkeep) = static_cast<std::uint8_t>(0xff >> (kWordOctetsOfFrame - octets));
        model.PORT(rx, tlast) = position_ + octets == frame.size();
        word_valid_ = true;
    }
    model.PORT(rx, tvalid) = word_valid_;
    model.PORT(rx, tuser) = 0;

    ready_ = !transmit_held_ && posted_octets_ < kQueued &&
             (in_frame_ || transmit_line_.free(cycle));
    model.PORT(tx, tready) = ready_;
}

void EthernetPort::sample(const Vrnic& model, Cycle cycle) {
    armed_ = model.armed;
    deadline_ = model.deadline;

    if (word_valid_ && model.PORT(rx, tready)) {
        word_valid_ = false;
        position_ += kWordOctetsOfFrame;
        if (position_ >= frames_.front().size()) {
            ++rx_frames_;
            rx_octets_ += frames_.front().size();
            frames_octets_ -= frames_.front().size();
            frames_.pop_front();
            position_ = 0;
        }
    } else if (word_valid_) {
        ++rx_stalls_;
    }

    check_transmit(model, cycle);
    if (!model.PORT(tx, tvalid) || !ready_) return;
    if (!in_frame_) began_ = cycle;
    in_frame_ = !model.PORT(tx, tlast);
    const std::uint64_t word = model.PORT(tx, tdata);
    const auto* raw = reinterpret_cast<const std::uint8_t*>(&word);
    const unsigned octets = std::popcount(static_cast<unsigned>(model.PORT(tx, tkeep)));
    if (frame_.size() < kLongestFrame) frame_.insert(frame_.end(), raw, raw + octets);
    if (in_frame_) return;
    transmit_line_.take(began_, frame_.size());
    if (!model.PORT(tx, tuser)) {
        ++tx_frames_;
        tx_octets_ += frame_.size();
        posted_octets_ += frame_.size();
        posted_.push_back(std::move(frame_));
        flush();
    }
    frame_.clear();
}

// What a MAC asks for: words stay until they are taken, and follow each other without a gap.
void EthernetPort::check_transmit(const Vrnic& model, Cycle cycle) {
    const bool valid = model.PORT(tx, tvalid), last = model.PORT(tx, tlast);
    const unsigned keep = model.PORT(tx, tkeep);
    const std::uint32_t flags = keep | last << 8 | model.PORT(tx, tuser) << 9;
    if (waits_ && (!valid || model.PORT(tx, tdata) != waiting_data_ || flags != waiting_flags_)) {
        faults_.add(cycle, "tx: a word changed before it was taken");
    }
    if (in_frame_ && !valid) faults_.add(cycle, "tx: a gap within a frame");
    if (valid && (keep == 0 || (keep & (keep + 1)) != 0 || (!last && keep != 0xff))) {
        faults_.add(cycle, "tx: tkeep is " + std::to_string(keep) + (last ? "" : " before tlast") +
                               "; allowed: octets from the first one on, all before tlast");
    }
    waits_ = valid && !ready_;
    waiting_data_ = model.PORT(tx, tdata);
    waiting_flags_ = flags;
}

std::string EthernetPort::statistics() const {
    const auto field = [](const char* name, std::uint64_t value) {
        return std::string("\"") + name + "\":" + std::to_string(value);
    };
    return "\"connections\":[],\"ethernet\":{" + field("rx_frames", rx_frames_) + "," +
           field("rx_octets", rx_octets_) + "," + field("rx_stalls", rx_stalls_) + "," +
           field("tx_frames", tx_frames_) + "," + field("tx_octets", tx_octets_) + "}";
}

}  // namespace stagecoach
