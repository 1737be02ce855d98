// What every part of the runtime shares: types, the names and width of the model's ports, reported faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "Vrnic.h"

// Verilator writes the second underscore of "m_axi__awaddr" as a hexadecimal code.
#define PORT(group, name) group##___05F##name

namespace stagecoach {

using Cycle = std::uint64_t;

// Of a deadline: there is none.
constexpr std::uint64_t kNever = ~std::uint64_t{0};

// The model has ports of 32, 64 or 128 bits (RnicConfig.data_width) for host memory and the LLP.
using DataPort = std::remove_cvref_t<decltype(std::declval<Vrnic&>().PORT(m_axi, rdata))>;
constexpr unsigned kDataOctets = sizeof(DataPort);

// What host memory takes in one step, at an aligned address.
using Word = std::conditional_t<kDataOctets == 4, std::uint32_t, std::uint64_t>;
constexpr unsigned kWordOctets = sizeof(Word);
constexpr unsigned kWords = kDataOctets / kWordOctets;
constexpr std::uint8_t kWordStrobes = (1u << kWordOctets) - 1;

// The octets of one beat, lane 0 first.
struct Data {
    Word words[kWords] = {};
};

inline Data read_port(const DataPort& port) {
    Data data;
    std::memcpy(data.words, &port, kDataOctets);
    return data;
}

inline void write_port(DataPort& port, const Data& data) {
    std::memcpy(&port, data.words, kDataOctets);
}

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
