// What keeps two devices in step: a socket to the other one, over which both tell when they are
// where they wait for each other.
#pragma once

#include <cstddef>

namespace stagecoach {

class Step {
  public:
    enum class Result {
        kMet,    // the other device is there, too
        kWoken,  // something else wants to be done first; call again
        kGone,   // the other device keeps in step no more
    };

    // Takes a connected stream socket over. `wake` becomes readable when the wait is to end.
    Step(int descriptor, int wake) : descriptor_(descriptor), wake_(wake) {}
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

    // Waits until the other device has called this as often as this one.
    Result meet();

  private:
    Result tell();

    int descriptor_;
    int wake_;
    bool told_ = false;
};

}  // namespace stagecoach
