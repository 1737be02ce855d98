// What every part of the runtime shares: types, the names of the model's ports, reported faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "Vrnic.h"

// Verilator writes the second underscore of "m_axi__awaddr" as a hexadecimal code.
#define PORT(group, name) group##___05F##name

namespace stagecoach {

using Cycle = std::uint64_t;

// Breaches of a port's contract by the device. They are kept, not fatal: tests look at them.
class Faults {
  public:
    void add(Cycle cycle, const std::string& text) {
        ++count_;
        if (kept_.size() < kKept) kept_.push_back("cycle " + std::to_string(cycle) + ": " + text);
    }
    std::uint64_t count() const { return count_; }
    const std::vector<std::string>& kept() const { return kept_; }

  private:
    static constexpr std::size_t kKept = 16;
    std::uint64_t count_ = 0;
    std::vector<std::string> kept_;
};

}  // namespace stagecoach
