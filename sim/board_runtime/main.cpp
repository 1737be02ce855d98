// A board in simulation: its serial pins are joined to a pseudo-terminal.
//
// The first line of the output names the terminal, the last one, when the input has ended, has
// counters as JSON.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>

#include "Vboard.h"
#include "faults.h"
#include "verilated.h"

namespace stagecoach {

using Cycle = std::uint64_t;

struct Settings {
    unsigned divisor = 4;       // cycles of a bit
    Cycle quiet = 100000;       // cycles without an octet after which the board sleeps
    std::uint64_t seed = 1;
    unsigned rate = 0;          // faults in a million octets, of each kind
};

// The other end of the board's UART.
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

class Board {
  public:
    explicit Board(const Settings& settings)
        : settings_(settings),
          uart_(settings.divisor),
          to_board_(settings.seed, settings.rate),
          from_board_(settings.seed + 1, settings.rate),
          context_(std::make_unique<VerilatedContext>()),
          model_(std::make_unique<Vboard>(context_.get(), "board")) {}

    void run() {
        std::printf("%s\n", terminal_.name().c_str());
        std::fflush(stdout);
        model_->clk = 0;
        model_->rst = 1;
        model_->rx = 1;
        Cycle next_look = 0, active = 0;
        while (true) {
            if (cycle_ >= next_look) {
                next_look = cycle_ + kLookPeriod;
                terminal_.receive(to_send_);
                terminal_.send(received_);
                const bool asleep = cycle_ > active + settings_.quiet && to_send_.empty() &&
                                    passing_.empty() && received_.empty();
                if (!look(asleep ? 1000 : 0)) break;
            }
            if (step()) active = cycle_;
        }
        model_->final();
        std::printf("{\"cycles\":%llu,\"octets_to_board\":%llu,\"octets_from_board\":%llu,"
                    "\"lost\":%llu,\"changed\":%llu,\"inserted\":%llu}\n",
                    static_cast<unsigned long long>(cycle_),
                    static_cast<unsigned long long>(octets_to_board_),
                    static_cast<unsigned long long>(octets_from_board_),
                    static_cast<unsigned long long>(to_board_.lost + from_board_.lost),
                    static_cast<unsigned long long>(to_board_.changed + from_board_.changed),
                    static_cast<unsigned long long>(to_board_.inserted + from_board_.inserted));
    }

  private:
    static constexpr Cycle kLookPeriod = 512;
    static constexpr Cycle kResetCycles = 8;

    // One cycle; whether the line moves.
    bool step() {
        if (uart_.idle()) {
            if (passing_.empty() && !to_send_.empty()) {
                to_board_.pass(to_send_.front(), passing_);
                to_send_.pop_front();
            }
            if (!passing_.empty() && cycle_ > kResetCycles) {
                uart_.send(passing_.front());
                passing_.erase(passing_.begin());
                ++octets_to_board_;
            }
        }
        const bool moves = !uart_.idle() || !model_->tx;
        std::uint8_t octet;
        if (uart_.sample(model_->tx, octet)) {
            ++octets_from_board_;
            from_board_.pass(octet, received_);
        }
        ++cycle_;
        model_->rst = cycle_ <= kResetCycles;
        model_->rx = uart_.drive();
        model_->clk = 1;
        model_->eval();
        model_->clk = 0;
        model_->eval();
        return moves;
    }

    // Waits for the terminal; false when the input has ended.
    bool look(int milliseconds) {
        pollfd watched[2] = {{0, POLLIN, 0}, {terminal_.descriptor(), POLLIN, 0}};
        if (::poll(watched, 2, milliseconds) <= 0 || watched[0].revents == 0) return true;
        char ignored[64];
        return ::read(0, ignored, sizeof ignored) > 0;
    }

    const Settings settings_;
    Terminal terminal_;
    Uart uart_;
    LineFaults to_board_, from_board_;
    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vboard> model_;
    std::deque<std::uint8_t> to_send_;    // as the terminal gave them
    std::vector<std::uint8_t> passing_;   // on the line, with faults
    std::vector<std::uint8_t> received_;  // for the terminal
    Cycle cycle_ = 0;
    std::uint64_t octets_to_board_ = 0, octets_from_board_ = 0;
};

}  // namespace stagecoach

// divisor, quiet cycles, seed, rate
int main(int count, char** arguments) {
    if (count != 5) {
        std::fprintf(stderr, "usage: %s DIVISOR QUIET_CYCLES SEED FAULTS_PER_MILLION\n", arguments[0]);
        return 2;
    }
    try {
        stagecoach::Settings settings;
        settings.divisor = static_cast<unsigned>(std::stoul(arguments[1]));
        settings.quiet = std::stoull(arguments[2]);
        settings.seed = std::stoull(arguments[3]);
        settings.rate = static_cast<unsigned>(std::stoul(arguments[4]));
        stagecoach::Board(settings).run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}

void vl_finish(const char* file, int line, const char*) VL_MT_UNSAFE {
    throw std::runtime_error(std::string("$finish at ") + file + ":" + std::to_string(line));
}
void vl_stop(const char* file, int line, const char*) VL_MT_UNSAFE {
    throw std::runtime_error(std::string("$stop at ") + file + ":" + std::to_string(line));
}
void vl_fatal(const char* file, int line, const char*, const char* message) VL_MT_UNSAFE {
    throw std::runtime_error(std::string(message) + " (" + file + ":" + std::to_string(line) + ")");
}
