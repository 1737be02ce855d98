// AXI4 slave in front of the host memory: in order, full bandwidth, fixed latencies.
//
// A written word is visible as soon as it is here, or, as AXI allows, only with the write response
// of its burst (`late_writes`): until then reads find what was there before.
#pragma once

#include <deque>

#include "axi_port.h"
#include "common.h"
#include "host_memory.h"

namespace stagecoach {

class AxiMemory {
  public:
    struct Counters {
        std::uint64_t read_bursts = 0, read_beats = 0, read_errors = 0;
        std::uint64_t write_bursts = 0, write_beats = 0, write_errors = 0;

        Counters& operator+=(const Counters& other) {
            read_bursts += other.read_bursts;
            read_beats += other.read_beats;
            read_errors += other.read_errors;
            write_bursts += other.write_bursts;
            write_beats += other.write_beats;
            write_errors += other.write_errors;
            return *this;
        }
    };

    AxiMemory(AxiPort port, HostMemory& memory, Faults& faults, unsigned read_latency,
              unsigned write_latency, bool late_writes)
        : port_(port),
          memory_(memory),
          faults_(faults),
          read_latency_(read_latency),
          write_latency_(write_latency),
          late_writes_(late_writes) {}

    // What the slave does not do while it is held.
    static constexpr unsigned kHoldReads = 1, kHoldWrites = 2;

    // Answers nothing any more on the held channels, until it is called again.
    void hold(unsigned channels) { held_ = channels; }

    // Once, after `skip` of them, an access to these octets ends with an error response: a beat
    // that is read, which is zero then, or a burst that is written, of which nothing is written.
    void fail(bool write, std::uint64_t address, std::uint64_t octets, std::uint64_t skip,
              std::uint8_t response) {
        (write ? write_failure_ : read_failure_) = {true, address, octets, skip, response};
    }

    // Puts the slave's outputs of this cycle on the model's inputs.
    void drive(Cycle cycle) {
        const bool reads_held = held_ & kHoldReads, writes_held = held_ & kHoldWrites;
        port_.arready = !reads_held && reads_.size() < kOutstanding;
        port_.awready =
            !writes_held && writes_.size() + responses_.size() < kOutstanding;
        port_.wready = !writes_held && beats_.size() < kBufferedBeats;
        if (!read_valid_ && !reads_held && !reads_.empty() && reads_.front().ready <= cycle) {
            load_read();
        }
        port_.rvalid = read_valid_;
        if (read_valid_) {
            write_port(port_.rdata, read_data_);
            port_.rresp = read_response_;
            port_.rid = reads_.front().id;
            port_.rlast = reads_.front().beats == 1;
        }
        write_valid_ = !responses_.empty() &&
                       (write_valid_ || (!writes_held && responses_.front().ready <= cycle));
        port_.bvalid = write_valid_;
        if (write_valid_) {
            port_.bid = responses_.front().id;
            port_.bresp = responses_.front().response;
        }
    }

    // Takes what the handshakes of this cycle moved, after the model has settled.
    void sample(Cycle cycle) {
        if (read_valid_ && port_.rready) {
            ++counters.read_beats;
            counters.read_errors += read_response_ != kOkay;
            read_valid_ = false;
            Burst& burst = reads_.front();
            burst.address += kDataOctets;
            if (--burst.beats == 0) reads_.pop_front();
        }
        if (port_.arvalid && port_.arready) {
            ++counters.read_bursts;
            check(cycle, "read", port_.araddr, port_.arlen,
                  port_.arsize, port_.arburst);
            reads_.push_back({port_.araddr & kAligned, port_.arlen + 1u,
                              static_cast<std::uint8_t>(port_.arid),
                              cycle + read_latency_, kOkay, {}});
        }
        if (write_valid_ && port_.bready) {
            for (const Late& late : responses_.front().late) {
                memory_.write_word(late.address, late.value, late.strobes);
            }
            responses_.pop_front();
            write_valid_ = false;
        }
        if (port_.awvalid && port_.awready) {
            ++counters.write_bursts;
            check(cycle, "write", port_.awaddr, port_.awlen,
                  port_.awsize, port_.awburst);
            const std::uint64_t address = port_.awaddr & kAligned;
            const unsigned beats = port_.awlen + 1u;
            writes_.push_back({address, beats, static_cast<std::uint8_t>(port_.awid),
                               0, write_failure_.meets(address, std::uint64_t{kDataOctets} * beats), {}});
        }
        if (port_.wvalid && port_.wready) {
            ++counters.write_beats;
            beats_.push_back({read_port(port_.wdata),
                              static_cast<std::uint16_t>(port_.wstrb),
                              static_cast<bool>(port_.wlast)});
        }
        while (!beats_.empty() && !writes_.empty()) write_beat(cycle);
    }

    // Whether anything is offered on a channel, by either side.
    bool active() const {
        return port_.arvalid | port_.awvalid | port_.wvalid | port_.rvalid | port_.bvalid;
    }

    bool busy() const { return !reads_.empty() || !writes_.empty() || !responses_.empty(); }

    Counters counters;

  private:
    static constexpr std::size_t kOutstanding = 64;
    static constexpr std::size_t kBufferedBeats = 64;
    static constexpr std::uint8_t kOkay = 0, kDecodeError = 3;
    static constexpr std::uint64_t kAligned = ~std::uint64_t{kDataOctets - 1};
    static constexpr unsigned kSize = kDataOctets == 4 ? 2 : kDataOctets == 8 ? 3 : 4;  // AxSIZE

    // A word that is written and not visible yet.
    struct Late {
        std::uint64_t address;
        Word value;
        std::uint8_t strobes;
    };
    struct Burst {
        std::uint64_t address;
        unsigned beats;
        std::uint8_t id;
        Cycle ready;
        std::uint8_t response;
        std::vector<Late> late;
        bool failing = response != kOkay;  // from its start
    };
    struct Failure {
        bool armed = false;
        std::uint64_t address = 0, octets = 0, skip = 0;
        std::uint8_t response = kOkay;

        // The response to an access to these octets.
        std::uint8_t meets(std::uint64_t first, std::uint64_t count) {
            if (!armed || first >= address + octets || first + count <= address) return kOkay;
            if (skip-- > 0) return kOkay;
            armed = false;
            return response;
        }
    };
    struct Beat {
        Data data;
        std::uint16_t strobes;
        bool last;
    };

    void load_read() {
        const std::uint64_t address = reads_.front().address;
        read_data_ = {};
        read_response_ = read_failure_.meets(address, kDataOctets);
        if (read_response_ == kOkay) {
            bool any = false;
            for (unsigned word = 0; word < kWords; ++word) {
                any |= memory_.read_word(address + kWordOctets * word, read_data_.words[word]);
            }
            if (!any) read_response_ = kDecodeError;
        }
        read_valid_ = true;
    }

    static std::uint8_t strobes_of(const Beat& beat, unsigned word) {
        return beat.strobes >> (kWordOctets * word) & kWordStrobes;
    }

    // Whether all strobed octets of a beat are mapped.
    bool writable(std::uint64_t address, const Beat& beat) {
        for (unsigned word = 0; word < kWords; ++word) {
            if (!memory_.writable(address + kWordOctets * word, strobes_of(beat, word))) return false;
        }
        return true;
    }

    // Writes the strobed octets of a beat. False, and nothing is written, if one is not mapped.
    bool write(std::uint64_t address, const Beat& beat) {
        // One word looks for itself.
        if (kWords > 1 && !writable(address, beat)) return false;
        bool written = true;
        for (unsigned word = 0; word < kWords; ++word) {
            written &= memory_.write_word(address + kWordOctets * word, beat.data.words[word],
                                          strobes_of(beat, word));
        }
        return written;
    }

    void write_beat(Cycle cycle) {
        Burst& burst = writes_.front();
        const Beat beat = beats_.front();
        beats_.pop_front();
        if (!beat.strobes || burst.failing) {
            // Nothing is written.
        } else if (late_writes_) {
            if (writable(burst.address, beat)) {
                for (unsigned word = 0; word < kWords; ++word) {
                    burst.late.push_back({burst.address + kWordOctets * word, beat.data.words[word],
                                          strobes_of(beat, word)});
                }
            } else {
                burst.response = kDecodeError;
            }
        } else if (!write(burst.address, beat)) {
            burst.response = kDecodeError;
        }
        if (beat.last != (burst.beats == 1)) faults_.add(cycle, "AXI write: WLAST not on the last beat");
        burst.address += kDataOctets;
        if (--burst.beats == 0) {
            counters.write_errors += burst.response != kOkay;
            burst.ready = cycle + write_latency_;
            responses_.push_back(std::move(burst));
            writes_.pop_front();
        }
    }

    void check(Cycle cycle, const char* what, std::uint64_t address, unsigned length, unsigned size,
               unsigned burst) {
        if (size != kSize || burst != 1) {
            faults_.add(cycle, std::string("AXI ") + what + ": size " + std::to_string(size) +
                                   ", burst " + std::to_string(burst) + "; allowed: " +
                                   std::to_string(kSize) + " and 1 (INCR)");
        }
        if ((address & kAligned & 0xfff) + kDataOctets * (length + 1u) > 0x1000) {
            faults_.add(cycle, std::string("AXI ") + what + " burst crosses 4 KiB");
        }
    }

    const AxiPort port_;
    HostMemory& memory_;
    Faults& faults_;
    unsigned read_latency_, write_latency_;
    bool late_writes_;
    std::deque<Burst> reads_, writes_, responses_;
    std::deque<Beat> beats_;
    bool read_valid_ = false, write_valid_ = false;
    Data read_data_;
    std::uint8_t read_response_ = kOkay;
    unsigned held_ = 0;
    Failure read_failure_, write_failure_;
};

}  // namespace stagecoach
