// The board's memory, an AXI4 slave: in order, with a fixed latency.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "Vboard.h"

namespace stagecoach {

class Memory {
  public:
    explicit Memory(unsigned log2) : octets_(std::size_t{1} << log2) {}

    bool has(std::uint64_t address) const { return address < octets_.size(); }
    std::uint64_t read(std::uint64_t address) const {
        std::uint64_t word;
        std::memcpy(&word, &octets_[address], sizeof word);
        return word;
    }
    void write(std::uint64_t address, std::uint64_t word, unsigned strobes) {
        for (unsigned lane = 0; lane < 8; ++lane) {
            if (strobes >> lane & 1) octets_[address + lane] = static_cast<std::uint8_t>(word >> 8 * lane);
        }
    }

  private:
    std::vector<std::uint8_t> octets_;
};

// `Port` names the signals of an AXI4 port of the model; NIC_AXI defines one.
template <typename Port>
class MemoryPort {
  public:
    explicit MemoryPort(Memory& memory) : memory_(memory) {}

    // After a clock edge, before the model settles: what the slave says in this cycle.
    void drive(Vboard& model) {
        Port port{model};
        ++cycle_;
        port.arready() = reads_.size() < kBurstsOfAPort;
        port.awready() = writes_.size() < kBurstsOfAPort;
        port.wready() = true;
        const bool readable = !reads_.empty() && reads_.front().ready <= cycle_;
        port.rvalid() = readable;
        if (readable) {
            const Burst& burst = reads_.front();
            const bool good = memory_.has(burst.address);
            port.rdata() = good ? memory_.read(burst.address) : 0;
            port.rresp() = good ? kOkay : kDecodeError;
            port.rid() = burst.id;
            port.rlast() = burst.beats == 1;
        }
        const bool answered = !answers_.empty() && answers_.front().ready <= cycle_;
        port.bvalid() = answered;
        if (answered) {
            port.bresp() = answers_.front().response;
            port.bid() = answers_.front().id;
        }
    }

    // Before the next clock edge: the handshakes of this cycle.
    void sample(Vboard& model) {
        Port port{model};
        if (port.rvalid() && port.rready()) {
            Burst& burst = reads_.front();
            burst.address += 8;
            if (--burst.beats == 0) reads_.pop_front();
        }
        if (port.bvalid() && port.bready()) answers_.pop_front();
        if (port.arvalid() && port.arready()) {
            check("read", port.araddr(), port.arlen(), port.arsize(), port.arburst());
            reads_.push_back({port.araddr(), port.arlen() + 1u, port.arid(), cycle_ + kLatency});
        }
        if (port.awvalid() && port.awready()) {
            check("write", port.awaddr(), port.awlen(), port.awsize(), port.awburst());
            writes_.push_back({port.awaddr(), port.awlen() + 1u, port.awid(), 0});
        }
        if (port.wvalid() && port.wready()) {
            beats_.push_back({port.wdata(), port.wstrb(), static_cast<bool>(port.wlast())});
        }
        while (!beats_.empty() && !writes_.empty()) write();
    }

  private:
    static constexpr std::size_t kBurstsOfAPort = 16;
    static constexpr std::uint64_t kLatency = 20;
    static constexpr std::uint8_t kOkay = 0, kDecodeError = 3;

    struct Burst {
        std::uint64_t address;
        unsigned beats;
        std::uint8_t id;
        std::uint64_t ready;
        std::uint8_t response = kOkay;
    };
    struct Beat {
        std::uint64_t data;
        unsigned strobes;
        bool last;
    };

    void write() {
        Burst& burst = writes_.front();
        const Beat beat = beats_.front();
        beats_.pop_front();
        if (beat.last != (burst.beats == 1)) fail("WLAST not on the last beat");
        if (memory_.has(burst.address)) {
            memory_.write(burst.address, beat.data, beat.strobes);
        } else if (beat.strobes) {
            burst.response = kDecodeError;
        }
        burst.address += 8;
        if (--burst.beats) return;
        burst.ready = cycle_ + kLatency;
        answers_.push_back(burst);
        writes_.pop_front();
    }

    static void check(const char* what, std::uint64_t address, unsigned length, unsigned size,
                      unsigned burst) {
        if (size != 3 || burst != 1) fail(std::string(what) + " burst is none of words with INCR");
        if ((address & 0xfff) + 8 * (length + 1) > 0x1000) fail(std::string(what) + " burst crosses 4 KiB");
    }
    [[noreturn]] static void fail(const std::string& what) {
        throw std::runtime_error(std::string(Port::kName) + ": " + what);
    }

    Memory& memory_;
    std::uint64_t cycle_ = 0;
    std::deque<Burst> reads_, writes_, answers_;
    std::deque<Beat> beats_;
};

#define NIC_AXI_SIGNAL(group, name) \
    auto& name() { return model.group##___05F##name; }  // Verilator writes __ so
#define NIC_AXI(type, group)                                                                     \
    struct type {                                                                                \
        static constexpr const char* kName = #group;                                             \
        Vboard& model;                                                                           \
        NIC_AXI_SIGNAL(group, awaddr) NIC_AXI_SIGNAL(group, awlen) NIC_AXI_SIGNAL(group, awsize) \
        NIC_AXI_SIGNAL(group, awburst) NIC_AXI_SIGNAL(group, awid)                               \
        NIC_AXI_SIGNAL(group, awvalid) NIC_AXI_SIGNAL(group, awready)                            \
        NIC_AXI_SIGNAL(group, wdata) NIC_AXI_SIGNAL(group, wstrb) NIC_AXI_SIGNAL(group, wlast)   \
        NIC_AXI_SIGNAL(group, wvalid) NIC_AXI_SIGNAL(group, wready)                              \
        NIC_AXI_SIGNAL(group, bid) NIC_AXI_SIGNAL(group, bresp) NIC_AXI_SIGNAL(group, bvalid)    \
        NIC_AXI_SIGNAL(group, bready)                                                            \
        NIC_AXI_SIGNAL(group, araddr) NIC_AXI_SIGNAL(group, arlen) NIC_AXI_SIGNAL(group, arsize) \
        NIC_AXI_SIGNAL(group, arburst) NIC_AXI_SIGNAL(group, arid)                               \
        NIC_AXI_SIGNAL(group, arvalid) NIC_AXI_SIGNAL(group, arready)                            \
        NIC_AXI_SIGNAL(group, rid) NIC_AXI_SIGNAL(group, rdata) NIC_AXI_SIGNAL(group, rresp)     \
        NIC_AXI_SIGNAL(group, rlast) NIC_AXI_SIGNAL(group, rvalid) NIC_AXI_SIGNAL(group, rready) \
    }

NIC_AXI(BoardPort, memory);

}  // namespace stagecoach
