// A log of the octets that crossed the LLP port, from which a packet capture can be written.
#pragma once

#include <chrono>
#include <cstring>

#include "common.h"
#include "shared.h"

namespace stagecoach {

// Layout of a record; its octets follow it. sim/device.py unpacks the same.
struct RecordHeader {
    std::uint32_t kind;
    std::uint32_t connection;
    std::uint32_t stream;  // running number of attachments
    std::uint32_t octets;
    std::uint64_t cycle;
    std::uint64_t time_ns;   // since the Unix epoch
    std::uint64_t position;  // of the first octet in its direction, since the attachment
};
static_assert(sizeof(RecordHeader) == 40, "sim/device.py unpacks 40 octets");

class Recorder {
  public:
    Recorder(bool enabled, std::uint64_t limit) : enabled_(enabled), limit_(limit) {}

    bool enabled() const { return enabled_; }
    bool truncated() const { return truncated_; }

    void add(RecordKind kind, unsigned connection, std::uint32_t stream, Cycle cycle,
             std::uint64_t position, const std::uint8_t* octets = nullptr, std::size_t count = 0) {
        if (!enabled_ || truncated_) return;
        if (log_.size() + sizeof(RecordHeader) + count > limit_) {
            truncated_ = true;
            return;
        }
        const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::system_clock::now().time_since_epoch());
        const RecordHeader header{static_cast<std::uint32_t>(kind),
                                  connection,
                                  stream,
                                  static_cast<std::uint32_t>(count),
                                  cycle,
                                  static_cast<std::uint64_t>(now.count()),
                                  position};
        const auto* raw = reinterpret_cast<const std::uint8_t*>(&header);
        log_.insert(log_.end(), raw, raw + sizeof header);
        if (count) log_.insert(log_.end(), octets, octets + count);
    }

    // Hands out everything recorded so far and forgets it.
    std::vector<std::uint8_t> take() {
        std::vector<std::uint8_t> taken;
        taken.swap(log_);
        truncated_ = false;
        return taken;
    }

  private:
    bool enabled_;
    std::uint64_t limit_;
    bool truncated_ = false;
    std::vector<std::uint8_t> log_;
};

}  // namespace stagecoach
