// What a bad line does to octets: it changes, loses and inserts them, by a seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace stagecoach {

class LineFaults {
  public:
    // `rate`: octets in a million that meet a fault, of each of the three kinds.
    LineFaults(std::uint64_t seed, unsigned rate) : random_(seed), rate_(rate) {}

    void pass(std::uint8_t octet, std::vector<std::uint8_t>& out) {
        if (rate_ == 0) {
            out.push_back(octet);
            return;
        }
        if (happens()) {
            ++lost;
        } else if (happens()) {
            ++changed;
            out.push_back(octet ^ static_cast<std::uint8_t>(1u << (random_() & 7)));
        } else {
            out.push_back(octet);
        }
        if (happens()) {
            ++inserted;
            out.push_back(static_cast<std::uint8_t>(random_()));
        }
    }

    std::uint64_t lost = 0, changed = 0, inserted = 0;

  private:
    bool happens() { return random_() % 1000000 < rate_; }

    std::mt19937_64 random_;
    unsigned rate_;
};

}  // namespace stagecoach
