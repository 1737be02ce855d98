// The board's Ethernet port: frames without FCS, each a message of a SOCK_SEQPACKET socket.
#pragma once

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "Vboard.h"

namespace stagecoach {

class Frames {
  public:
    explicit Frames(int socket) : socket_(socket) {}

    // Hands over what has come; whether a frame is under way in either direction.
    bool look() {
        while (!sent_.empty()) {
            const ssize_t count = ::send(socket_, sent_.front().data(), sent_.front().size(),
                                         MSG_DONTWAIT | MSG_NOSIGNAL);
            if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
            sent_.pop_front();  // if nobody is there any more, it is lost
        }
        while (received_.size() < kQueued) {
            std::vector<std::uint8_t> frame(kLongest);
            const ssize_t count = ::recv(socket_, frame.data(), frame.size(), MSG_DONTWAIT);
            if (count <= 0) break;
            frame.resize(static_cast<std::size_t>(count));
            received_.push_back(std::move(frame));
        }
        return !received_.empty() || !sent_.empty() || !frame_.empty();
    }

    void drive(Vboard& model) {
        model.tx___05Ftready = sent_.size() < kQueued;
        model.rx___05Ftuser = 0;
        model.rx___05Ftvalid = !received_.empty();
        if (received_.empty()) return;
        const std::vector<std::uint8_t>& frame = received_.front();
        const std::size_t octets = std::min<std::size_t>(8, frame.size() - position_);
        std::uint64_t word = 0;
        std::memcpy(&word, frame.data() + position_, octets);
        model.rx___05Ftdata = word;
        model.rx___05Ftkeep = static_cast<std::uint8_t>(0xff >> (8 - octets));
        model.rx___05Ftlast = position_ + octets == frame.size();
    }

    void sample(Vboard& model) {
        if (model.rx___05Ftvalid && model.rx___05Ftready) {
            position_ += 8;
            if (position_ >= received_.front().size()) {
                ++to_board;
                received_.pop_front();
                position_ = 0;
            }
        }
        if (model.restart) frame_.clear();  // it has no end
        if (!model.tx___05Ftvalid || !model.tx___05Ftready) {
            if (!frame_.empty() && !model.tx___05Ftvalid) throw std::runtime_error("tx: a gap in a frame");
            return;
        }
        const std::uint64_t word = model.tx___05Ftdata;
        const auto* octets = reinterpret_cast<const std::uint8_t*>(&word);
        const int count = std::popcount(static_cast<unsigned>(model.tx___05Ftkeep));
        frame_.insert(frame_.end(), octets, octets + count);
        if (!model.tx___05Ftlast) return;
        if (!model.tx___05Ftuser) {
            ++from_board;
            sent_.push_back(std::move(frame_));
        }
        frame_.clear();
    }

    std::uint64_t to_board = 0, from_board = 0;

  private:
    static constexpr std::size_t kQueued = 64, kLongest = 1 << 14;

    const int socket_;
    std::deque<std::vector<std::uint8_t>> received_, sent_;  // for the board, and from it
    std::size_t position_ = 0;  // of the next word of the first one
    std::vector<std::uint8_t> frame_;
};

}  // namespace stagecoach
