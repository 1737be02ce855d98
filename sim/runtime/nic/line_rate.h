// When a frame may begin at 10 Gb/s, of which a cycle of 6.4 ns takes 8 octets.
#pragma once

#include <algorithm>

#include "common.h"
#include "shared.h"

namespace stagecoach {

class LineRate {
  public:
    bool free(Cycle cycle) const { return next_ <= kOctets * cycle; }

    // A frame of so many octets, without FCS, began in this cycle. One that begins as early as it
    // may keeps the octets of its first cycle that were not needed to wait.
    void take(Cycle began, std::size_t octets) {
        if (next_ + kOctets <= kOctets * began) next_ = kOctets * began;
        next_ += std::max<Cycle>(octets, kMinimumFrame) + kFrameOverhead;
    }

  private:
    static constexpr Cycle kOctets = 8;

    Cycle next_ = 0;  // in octets
};

}  // namespace stagecoach
