// The board of an RNIC: it has serial pins alone.
#include <cstdio>
#include <exception>

#include "board.h"
#include "verilated_ends.h"

namespace {

struct Nothing {
    static constexpr int kSleepMilliseconds = 1000;
    static decltype((std::declval<Vboard&>().rx)) rx(Vboard& model) { return model.rx; }
    static bool tx(const Vboard& model) { return model.tx; }
    bool look() { return false; }
    void drive(Vboard&) {}
    void sample(const Vboard&) {}
    std::string statistics() const { return ""; }
};

}  // namespace

int main(int count, char** arguments) {
    if (count != 5) {
        std::fprintf(stderr, "usage: %s DIVISOR QUIET_CYCLES SEED FAULTS_PER_MILLION\n", arguments[0]);
        return 2;
    }
    try {
        Nothing around;
        stagecoach::Board(stagecoach::Settings(arguments + 1), around).run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
