// A pseudo-terminal in which a program finds the board's serial port.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <cstdint>
#include <deque>
#include <string>
#include <system_error>
#include <vector>

namespace stagecoach {

class Terminal {
  public:
    Terminal() {
        descriptor_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        if (descriptor_ < 0 || ::grantpt(descriptor_) || ::unlockpt(descriptor_)) fail("pty");
        name_ = ::ptsname(descriptor_);
        // Held open, so that the terminal lives on when a program closes it.
        held_ = ::open(name_.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (held_ < 0) fail(name_);
        termios settings{};
        ::tcgetattr(held_, &settings);
        ::cfmakeraw(&settings);
        ::tcsetattr(held_, TCSANOW, &settings);
    }
    ~Terminal() {
        ::close(held_);
        ::close(descriptor_);
    }

    const std::string& name() const { return name_; }
    int descriptor() const { return descriptor_; }

    void receive(std::deque<std::uint8_t>& octets) {
        std::uint8_t buffer[4096];
        if (octets.size() >= sizeof buffer) return;
        const ssize_t got = ::read(descriptor_, buffer, sizeof buffer);
        if (got > 0) octets.insert(octets.end(), buffer, buffer + got);
    }

    // What nobody reads is lost, as at a serial port.
    void send(std::vector<std::uint8_t>& octets) {
        if (octets.empty()) return;
        const ssize_t taken = ::write(descriptor_, octets.data(), octets.size());
        if (taken > 0) octets.erase(octets.begin(), octets.begin() + taken);
        if (octets.size() > kKept) octets.clear();
    }

  private:
    static constexpr std::size_t kKept = 1 << 16;

    [[noreturn]] static void fail(const std::string& what) {
        throw std::system_error(errno, std::generic_category(), what);
    }

    int descriptor_ = -1, held_ = -1;
    std::string name_;
};

}  // namespace stagecoach
