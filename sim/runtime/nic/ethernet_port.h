// The Ethernet side of a NIC: frames to and from a socket at the rate of a wire, and the time.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "common.h"
#include "line_rate.h"
#include "recorder.h"
#include "settings.h"
#include "shared.h"

namespace stagecoach {

// One message of the SOCK_SEQPACKET socket is one frame without FCS, in both directions. Frames
// for the device wait in the socket while `kQueued` octets wait here; frames of the device wait in
// `tx` while as many wait for room in the socket.
class EthernetPort {
  public:
    // The socket of `settings` belongs to this object.
    EthernetPort(const Settings& settings, int wake_descriptor, Recorder& recorder,
                 Faults& faults);
    ~EthernetPort();
    EthernetPort(const EthernetPort&) = delete;
    EthernetPort& operator=(const EthernetPort&) = delete;

    // Takes frames, and looks at the clock unless the device is paced; waits for neither.
    // Returns whether a frame came.
    bool poll(int milliseconds, Cycle cycle);
    // Hands over frames for which the socket had no room.
    void tell() { flush(); }
    // Waits for a frame, a wake or the device's deadline. Returns whether there was one.
    bool rest(Cycle cycle);
    bool any_socket() const { return true; }
    void close_all(double, Cycle) { flush(); }

    // Per cycle: put the port's outputs on the model's inputs, then take the handshakes.
    void drive(Vrnic& model, Cycle cycle);
    void sample(const Vrnic& model, Cycle cycle);
    // Whether a word is offered in either direction.
    static bool active(const Vrnic& model) {
        return model.PORT(rx, tvalid) | model.PORT(tx, tvalid);
    }
    bool busy() const { return !frames_.empty() || in_frame_ || due_us() <= time_us_; }

    // Of a paced device: this is the time of a cycle, and each takes 6.4 ns.
    void begin(std::uint64_t time_ps, Cycle cycle);
    // When the device wants to be woken, in microseconds, or kNever.
    std::uint64_t due_us() const;
    static bool interrupt(const Vrnic& model) { return model.network_irq; }

    // Takes nothing any more from the device's tx, until it is called again.
    void hold_transmit(bool hold) { transmit_held_ = hold; }

    // There are no connections here. They throw std::invalid_argument.
    template <typename... Arguments>
    void attach(Arguments...) const { refuse(); }
    template <typename... Arguments>
    void detach(Arguments...) const { refuse(); }
    template <typename... Arguments>
    void lose_after(Arguments...) const { refuse(); }

    std::string statistics() const;

  private:
    static constexpr std::size_t kQueued = 64u << 10;
    static constexpr std::size_t kLongestFrame = 1u << 14;

    [[noreturn]] static void refuse();
    std::uint64_t clock_us() const;
    bool receive();
    void flush();
    void check_transmit(const Vrnic& model, Cycle cycle);

    const int socket_;
    const int wake_;
    const bool paced_;
    const std::int64_t clock_offset_ns_;
    Faults& faults_;

    std::uint64_t begin_ps_ = 0;  // paced: of begin_cycle_
    Cycle begin_cycle_ = 0;
    std::uint64_t time_us_ = 0;
    bool armed_ = false;
    std::uint32_t deadline_ = 0;

    std::deque<std::vector<std::uint8_t>> frames_;  // for the device; the first one is under way
    std::size_t frames_octets_ = 0;
    std::size_t position_ = 0;  // of the next word, in the first frame
    bool word_valid_ = false;
    LineRate receive_line_;

    bool transmit_held_ = false, ready_ = false;
    bool in_frame_ = false;
    Cycle began_ = 0;
    bool waits_ = false;  // a word was offered and not taken
    std::uint64_t waiting_data_ = 0;
    std::uint32_t waiting_flags_ = 0;
    std::vector<std::uint8_t> frame_;
    std::deque<std::vector<std::uint8_t>> posted_;  // for which the socket had no room
    std::size_t posted_octets_ = 0;
    LineRate transmit_line_;

    std::uint64_t rx_frames_ = 0, rx_octets_ = 0, rx_stalls_ = 0, tx_frames_ = 0, tx_octets_ = 0;
};

}  // namespace stagecoach
