// The board of a NIC: serial pins, Ethernet, and memory.
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "board.h"
#include "frames.h"
#include "memory.h"
#include "verilated_ends.h"

namespace {

using namespace stagecoach;

class Surroundings {
  public:
    // The engine's timers go on: a board that sleeps is as slow as its clock says.
    static constexpr int kSleepMilliseconds = 1;

    Surroundings(unsigned memory_log2, int socket)
        : memory_(memory_log2), port_(memory_), frames_(socket) {}

    static decltype((std::declval<Vboard&>().uart_rx)) rx(Vboard& model) { return model.uart_rx; }
    static bool tx(const Vboard& model) { return model.uart_tx; }

    bool look() { return frames_.look(); }
    void drive(Vboard& model) {
        port_.drive(model);
        frames_.drive(model);
    }
    void sample(Vboard& model) {
        port_.sample(model);
        frames_.sample(model);
    }
    std::string statistics() const {
        return ",\"frames_to_board\":" + std::to_string(frames_.to_board) +
               ",\"frames_from_board\":" + std::to_string(frames_.from_board);
    }

  private:
    Memory memory_;
    MemoryPort<BoardPort> port_;
    Frames frames_;
};

}  // namespace

int main(int count, char** arguments) {
    if (count != 7) {
        std::fprintf(stderr,
                     "usage: %s DIVISOR QUIET_CYCLES SEED FAULTS_PER_MILLION MEMORY_LOG2 SOCKET\n",
                     arguments[0]);
        return 2;
    }
    try {
        Surroundings around(static_cast<unsigned>(std::stoul(arguments[5])), std::stoi(arguments[6]));
        Board(Settings(arguments + 1), around).run();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
