// The device's LLP port on top of sockets: one connected stream socket per connection, or messages
// to and from a network engine for all of them (sim/llp_messages.py).
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>

#include "common.h"
#include "shared.h"
#include "recorder.h"
#include "settings.h"

namespace stagecoach {

// Positions are kept as 64-bit counts; the port carries their low 32 bits.
class SocketLlp {
  public:
    using Clock = std::chrono::steady_clock;
    // Called when a detachment has ended: true if everything sent before it was given to the
    // kernel. The descriptor is -1 unless it was asked back.
    using Detached = std::function<void(bool flushed, int descriptor)>;

    // The socket of `settings`, if there is one, is that of a network engine, and belongs to this
    // object.
    SocketLlp(const Settings& settings, int wake_descriptor, Recorder& recorder, Faults& faults);
    ~SocketLlp();
    SocketLlp(const SocketLlp&) = delete;
    SocketLlp& operator=(const SocketLlp&) = delete;

    // Between cycles; these two throw std::invalid_argument.
    void attach(unsigned connection, int descriptor, unsigned emss, Cycle cycle);
    void detach(unsigned connection, double seconds, bool give_back, Cycle cycle, Detached done);

    // Serves the sockets; waits for them at most `milliseconds` (-1: for ever).
    // Returns whether anything happened.
    bool poll(int milliseconds, Cycle cycle);
    // Tells the network engine, if there is one, what happened since `poll`.
    void tell();
    // Waits until there is something to do. Returns whether there is.
    bool rest(Cycle cycle) { return poll(next_deadline(), cycle); }
    bool any_socket() const { return sockets_ != 0 || engine_ >= 0; }
    // Flushes and closes everything in bounded time; the model runs no more.
    void close_all(double seconds, Cycle cycle);

    // Per cycle: put the LLP's outputs on the model's inputs, then take the handshakes.
    void drive(Vrnic& model, Cycle cycle);
    void sample(const Vrnic& model, Cycle cycle);
    // Whether anything is offered on the port, by either side.
    static bool active(const Vrnic& model) {
        return model.PORT(llp, tx_valid) | model.PORT(llp, rx_request_valid) |
               model.PORT(llp, rx_release_valid) | model.PORT(llp, rx_valid) |
               model.PORT(llp, event_valid);
    }
    bool busy() const {
        return event_valid_ || !event_queue_.empty() || !requests_.empty() || in_fpdu_;
    }

    // The connection is lost as soon as the device has sent so many octets on it, inside of an FPDU
    // or not. Throws std::invalid_argument.
    void lose_after(unsigned connection, std::uint64_t octets);
    // Takes nothing any more from the device's tx, until it is called again.
    void hold_transmit(bool hold) { transmit_held_ = hold; }

    // JSON: a list of those that were ever attached.
    std::string statistics() const;

    // What only a network has: time, a deadline, an interrupt.
    void begin(std::uint64_t, Cycle) {}
    std::uint64_t due_us() const { return kNever; }
    static bool interrupt(const Vrnic&) { return false; }

  private:
    static constexpr std::uint64_t kReceiveBuffer = 1u << 20;  // power of two
    static constexpr std::uint64_t kTransmitBuffer = 256u << 10;  // of a socket
    static constexpr unsigned kWindowSteps = 8;                   // updates for each buffer
    static constexpr std::size_t kRequests = 16;
    static constexpr Cycle kAnswerLatency = 4;
    static constexpr std::size_t kLongestFpdu = 1u << 17;
    static constexpr std::uint32_t kNobody = ~0u;
    static constexpr std::uint32_t kEngine = ~0u - 1;

    enum class Phase { kDetached, kAttached, kDetaching };

    struct Counters {
        std::uint64_t tx_fpdus = 0, tx_octets = 0, tx_beats = 0;
        Cycle tx_first_cycle = 0, tx_last_cycle = 0;
        std::uint64_t rx_fpdus = 0, rx_octets = 0, rx_beats = 0, rx_requests = 0;
        Cycle rx_first_cycle = 0, rx_last_cycle = 0;
    };

    struct Connection {
        Phase phase = Phase::kDetached;
        int descriptor = -1;
        std::uint32_t stream = 0;
        std::uint32_t interest = 0;  // what epoll watches; 0: not registered

        std::unique_ptr<std::uint8_t[]> ring;
        std::uint64_t received = 0, announced = 0, released = 0;
        std::uint64_t next_fpdu = 0;  // where the FPDU starts that is to be counted next
        bool ended = false;           // the peer sent its last octet, or the connection is lost
        bool closed_announced = false;

        std::uint64_t transmitted = 0;  // taken from the device
        std::uint64_t sent = 0;         // of these, taken by the kernel, or dropped
        std::uint64_t granted = 0;      // announced window
        std::uint64_t transmit_buffer = kTransmitBuffer;
        bool of_engine = false;  // its octets cross as messages
        std::uint64_t released_told = 0;
        std::uint64_t lost_after = ~0ull;
        bool window_announced = false;
        bool broken = false;   // sending failed
        bool closing = false;  // the device asked for the close
        std::deque<std::vector<std::uint8_t>> backlog;
        std::size_t backlog_offset = 0;
        unsigned emss = 0;
        bool emss_pending = false;
        bool event_queued = false;

        Clock::time_point deadline;
        bool give_back = false;
        Detached done;
        Counters counters;
    };

    // A socket that was detached: what the peer still sends is read and dropped, because closing
    // with unread octets would reset the connection and might cost the peer what it has not read.
    struct Lingering {
        int descriptor;
        Clock::time_point deadline;
    };

    struct Request {
        unsigned connection;
        std::uint32_t stream;
        std::uint64_t position;
        unsigned octets;
        Cycle ready;
    };

    // Layout of a message; octets of the stream follow it.
    struct MessageHeader {
        std::uint32_t kind;
        std::uint32_t connection;
        std::uint64_t value;
    };
    static_assert(sizeof(MessageHeader) == 16, "sim/llp_messages.py packs 16 octets");

    // Milliseconds until a deadline needs service, -1 if there is none.
    int next_deadline() const;
    std::string statistics(unsigned connection) const;

    // Of llp_engine.cpp
    bool poll_engine(Cycle cycle);
    void take_message(const std::uint8_t* message, std::size_t octets, Cycle cycle);
    void attach_engine(unsigned number, std::uint64_t transmit_buffer, Cycle cycle);
    void take_octets(unsigned number, const std::uint8_t* octets, std::size_t count, Cycle cycle);
    void post(LlpMessage kind, unsigned number, std::uint64_t value = 0,
              const std::vector<std::uint8_t>& octets = {});
    void tell_released();
    void flush_engine();
    void watch_engine();

    void watch(unsigned number);
    void receive(unsigned number, Cycle cycle);
    void count_fpdus(Connection& connection);
    void finish_fpdu(bool close, Cycle cycle);
    void lose(unsigned number, Cycle cycle);
    void flush(unsigned number);
    void discard_backlog(Connection& connection);
    bool event_due(const Connection& connection) const;
    void queue_event(unsigned number);
    void next_event();
    void serve_detachments(Cycle cycle);
    void finish_detachment(unsigned number, bool flushed, Cycle cycle);
    void serve_lingering(bool draining);
    Data read_octets(const Request& request) const;

    std::vector<Connection> connections_;
    Recorder& recorder_;
    Faults& faults_;
    int epoll_;
    int wake_;
    int engine_;
    bool engine_writable_wanted_ = false;
    std::deque<std::vector<std::uint8_t>> posted_;  // messages for which the socket had no room
    std::vector<unsigned> releases_;                // connections that released since they were told
    std::vector<std::uint8_t> message_;
    unsigned sockets_ = 0;
    unsigned detaching_ = 0;
    std::uint32_t streams_ = 0;
    std::vector<Lingering> lingering_;

    std::deque<unsigned> event_queue_;
    bool event_valid_ = false;
    unsigned event_connection_ = 0;
    LlpEventKind event_kind_ = LlpEventKind::kRxAvailable;
    std::uint32_t event_value_ = 0;

    std::deque<Request> requests_;
    bool answer_valid_ = false;
    Data answer_data_;

    bool transmit_held_ = false;
    bool in_fpdu_ = false;
    unsigned fpdu_connection_ = 0;
    std::vector<std::uint8_t> fpdu_;
};

}  // namespace stagecoach
