// A board in simulation: its serial pins are joined to a pseudo-terminal.
//
// The first line of the output names the terminal, the last one, when the input has ended, has
// counters as JSON.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "Vboard.h"
#include "faults.h"
#include "terminal.h"
#include "uart.h"
#include "verilated.h"

namespace stagecoach {

using Cycle = std::uint64_t;

struct Settings {
    unsigned divisor = 4;       // cycles of a bit
    Cycle quiet = 100000;       // cycles without an octet after which the board sleeps
    std::uint64_t seed = 1;
    unsigned rate = 0;          // faults in a million octets, of each kind

    // From DIVISOR QUIET_CYCLES SEED FAULTS_PER_MILLION.
    explicit Settings(char** arguments)
        : divisor(static_cast<unsigned>(std::stoul(arguments[0]))),
          quiet(std::stoull(arguments[1])),
          seed(std::stoull(arguments[2])),
          rate(static_cast<unsigned>(std::stoul(arguments[3]))) {}
};

// `Around` is what stands at the other pins. It has
// static rx(model), tx(const model): the serial pins;
// kSleepMilliseconds: how long nothing happens at most while the board sleeps;
// look(): takes what has come from outside, returns whether there is something to do;
// drive(model), sample(model): what it does before and after each clock edge;
// statistics(): more counters, each after a comma.
template <typename Around>
class Board {
  public:
    Board(const Settings& settings, Around& around)
        : settings_(settings),
          around_(around),
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
        Around::rx(*model_) = 1;
        Cycle next_look = 0, active = 0;
        while (true) {
            if (cycle_ >= next_look) {
                next_look = cycle_ + kLookPeriod;
                terminal_.receive(to_send_);
                terminal_.send(received_);
                if (around_.look()) active = cycle_;
                const bool asleep = cycle_ > active + settings_.quiet && to_send_.empty() &&
                                    passing_.empty() && received_.empty();
                if (!look(asleep ? Around::kSleepMilliseconds : 0)) break;
            }
            if (step()) active = cycle_;
        }
        model_->final();
        std::printf("{\"cycles\":%llu,\"octets_to_board\":%llu,\"octets_from_board\":%llu,"
                    "\"lost\":%llu,\"changed\":%llu,\"inserted\":%llu%s}\n",
                    static_cast<unsigned long long>(cycle_),
                    static_cast<unsigned long long>(octets_to_board_),
                    static_cast<unsigned long long>(octets_from_board_),
                    static_cast<unsigned long long>(to_board_.lost + from_board_.lost),
                    static_cast<unsigned long long>(to_board_.changed + from_board_.changed),
                    static_cast<unsigned long long>(to_board_.inserted + from_board_.inserted),
                    around_.statistics().c_str());
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
        const bool tx = Around::tx(*model_);
        const bool moves = !uart_.idle() || !tx;
        std::uint8_t octet;
        if (uart_.sample(tx, octet)) {
            ++octets_from_board_;
            from_board_.pass(octet, received_);
        }
        around_.sample(*model_);
        ++cycle_;
        model_->clk = 1;
        model_->eval();
        model_->rst = cycle_ <= kResetCycles;
        Around::rx(*model_) = uart_.drive();
        around_.drive(*model_);
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
    Around& around_;
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
