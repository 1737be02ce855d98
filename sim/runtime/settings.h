// How a simulated device is set up.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

struct Settings {
    unsigned connections;
    unsigned read_latency;
    unsigned write_latency;
    bool late_writes;
    bool record;
    std::uint64_t record_limit;
    std::string trace_path;       // empty: no waveform
    int network;                  // SOCK_SEQPACKET socket to what stands behind the port, or -1
    bool paced;                   // runs in `pace` alone
    std::int64_t clock_offset_ns;  // unless paced: the time is CLOCK_MONOTONIC and this
    std::uint64_t memory;          // address in this process of the memory of the device
    std::uint64_t memory_octets;   // 0: it has none of its own
};

}  // namespace stagecoach
