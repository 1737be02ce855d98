// The other end of a board's UART.
#pragma once

#include <cstdint>

namespace stagecoach {

class Uart {
  public:
    explicit Uart(unsigned divisor) : divisor_(divisor) {}

    bool idle() const { return send_bits_ == 0; }

    void send(std::uint8_t octet) {
        send_shift_ = 1u << 9 | static_cast<unsigned>(octet) << 1;
        send_bits_ = 10;
        send_timer_ = divisor_;
    }

    // The level of the board's rx pin in this cycle.
    bool drive() {
        if (send_bits_ == 0) return true;
        const bool level = send_shift_ & 1;
        if (--send_timer_ == 0) {
            send_timer_ = divisor_;
            send_shift_ >>= 1;
            --send_bits_;
        }
        return level;
    }

    // Takes the level of the tx pin; true when `octet` has come.
    bool sample(bool level, std::uint8_t& octet) {
        if (receive_bits_ == 0) {
            if (level) return false;
            receive_bits_ = 10;
            receive_timer_ = divisor_ / 2;
            receive_shift_ = 0;
        }
        if (--receive_timer_ != 0) return false;
        receive_timer_ = divisor_;
        receive_shift_ = receive_shift_ >> 1 | static_cast<unsigned>(level) << 9;
        if (--receive_bits_ != 0) return false;
        octet = static_cast<std::uint8_t>(receive_shift_ >> 1);
        return receive_shift_ >> 9 & 1;
    }

  private:
    unsigned divisor_;
    unsigned send_bits_ = 0, send_shift_ = 0, send_timer_ = 0;
    unsigned receive_bits_ = 0, receive_shift_ = 0, receive_timer_ = 0;
};

}  // namespace stagecoach
