// The simulated device: the model, its surroundings, and the thread in which they run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "axi_memory.h"
#include "common.h"
#include "shared.h"
#include "host_memory.h"
#include "link.h"
#include "recorder.h"
#include "register_master.h"
#include "settings.h"
#include "step.h"
#ifdef CLOCKS
#include "input_clocks.h"
#endif

#ifdef STAGECOACH_TRACE
#include "verilated_fst_c.h"
#endif

namespace stagecoach {

constexpr unsigned kIrqs = static_cast<unsigned>(Irq::kNetwork) + 1;

// What `pace` tells; sim/device.py has the same.
struct Paced {
    std::uint32_t access_done;    // the access that was begun has ended, with these:
    std::uint32_t access_status;
    std::uint32_t access_value;
    std::uint32_t irq;            // it is high, or rose
    std::uint32_t network_irq;    // the same of that of a NIC's network
    std::uint32_t busy;           // more would happen without anything from outside
    std::uint64_t cycle;
    std::uint64_t due_us;         // when it has something to do by itself, or kNever
};

class Device {
  public:
    explicit Device(const Settings& settings);
    ~Device();

    // All of these may be called from any thread, and return when the device has done it.
    Status read_register(std::uint32_t address, std::uint32_t& value);
    Status write_register(std::uint32_t address, std::uint32_t value);
    Status map(std::uint64_t address, std::uint64_t octets);
    Status unmap(std::uint64_t address, std::uint64_t octets);
    Status attach(unsigned connection, int descriptor, unsigned emss);
    Status detach(unsigned connection, double seconds, bool give_back, int& descriptor);
    Status run_cycles(std::uint64_t cycles);
    // Keeps in step with the device at the other end of a connected stream socket, which belongs to
    // this one afterwards: both run the same kStepPeriod cycles, then look at their sockets. No cycle
    // passes while no caller waits for one, so what a program does takes no time; run_cycles, a
    // register access and wait_irq wait. It ends with run_freely or a detachment at either end.
    Status run_in_step(int descriptor);
    Status run_freely();
    // A paced device has no thread: it runs in this call, so many cycles from this time on, and
    // takes messages of the network before the first one. Register accesses begin with
    // begin_access, one at a time.
    Status pace(std::uint64_t time_ps, std::uint64_t cycles, Paced& result);
    Status begin_access(bool write, std::uint32_t address, std::uint32_t value);
    // What tests disturb the ports with: see AxiMemory and the Link.
    Status hold(unsigned axi_channels, bool transmit);
    Status lose_after(unsigned connection, std::uint64_t octets);
    Status fail_access(bool write, std::uint64_t address, std::uint64_t octets, std::uint64_t skip,
                       unsigned response);
    // Returns 1 if the interrupt is high or rose since the last call, 0 after the time, -1 if there
    // is no device.
    int wait_irq(Irq which, double seconds);
    // Lets one such call return 1.
    void wake_irq(Irq which);
    Status take_record(std::vector<std::uint8_t>& record);
    std::string statistics();
    void close(double seconds);
    std::string error() const;  // of the last call in this thread
    // Exact in step, where none may pass meanwhile; else to within kPollPeriod.
    Cycle cycles();

  private:
    static constexpr Cycle kSettle = 512;      // cycles after an access or any activity
    static constexpr Cycle kPollPeriod = 64;   // cycles between looks at the sockets
    static constexpr Cycle kResetCycles = 8;
    static constexpr Cycle kStepPeriod = 32;   // cycles between looks at the sockets, in step

    struct Interrupt {
        bool level = false, rose = false;
        unsigned waiters = 0;

        bool pending() const { return level || rose; }
    };

    // A call that waits to be carried out by the simulation thread.
    struct Task {
        std::function<void(Task&)> action;  // empty: a register access
        bool write = false;
        std::uint32_t address = 0, value = 0;
        Status status = Status::kOkay;
        std::string message;
        bool deferred = false;  // the action will be finished later
        bool done = false;
    };
    using TaskPointer = std::shared_ptr<Task>;

    Status submit(const TaskPointer& task);
    Status carry_out(const TaskPointer& task);
    void reset();
    bool busy() const;
    bool memory_busy() const;
    void enter_model();
    Status call(std::function<void(Task&)> action);
    bool wake();
    void note_irq(Irq which, bool level);
    void finish(const TaskPointer& task, Status status);
    void end_thread(Status status, const std::string& message);

    void thread_main();
    void simulate();
    void take_tasks();
    void finish_runs();
    void step();
    void sleep();
    void advance_in_step();
    bool met();
    bool awaited();
    void stand_still();
    void take_wakes();
    void leave_step();
    std::string describe() const;

    const Settings settings_;
    int wake_;
    Faults faults_;
    Recorder recorder_;
    HostMemory memory_;
    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vrnic> model_;
    std::vector<AxiMemory> axi_;
    RegisterMaster registers_;
#ifdef CLOCKS
    InputClocks input_clocks_;
#endif
    std::unique_ptr<Link> link_;
#ifdef STAGECOACH_TRACE
    std::unique_ptr<VerilatedFstC> trace_;
#endif

    // Of the simulation thread
    Cycle cycle_ = 0;
    Cycle active_until_ = 0;
    std::vector<std::pair<Cycle, std::weak_ptr<Task>>> running_;  // run_cycles: until when
    std::deque<TaskPointer> accesses_;
    TaskPointer access_;
    bool irqs_[kIrqs] = {};
    std::uint64_t irq_edges_ = 0;
    double running_seconds_ = 0;
    std::chrono::steady_clock::time_point running_since_;
    std::uint64_t sleeps_ = 0;
    std::vector<TaskPointer> deferred_;
    std::unique_ptr<Step> step_;  // none: runs freely
    Cycle step_end_ = 0;          // of the period
    bool looked_ = false;         // at the sockets, after this period

    std::recursive_mutex pace_mutex_;  // around all that a paced device does
    TaskPointer paced_access_;

    // Shared
    std::atomic<Cycle> cycles_{0};
    std::atomic<bool> tasks_pending_{false};
    std::atomic<bool> sleeping_{false};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<TaskPointer> tasks_;
    bool ended_ = false;
    Status ended_status_ = Status::kClosed;
    std::string message_;
    std::string last_statistics_;
    Interrupt interrupts_[kIrqs];
    std::atomic<bool> in_step_{false};
    double close_seconds_ = 1.0;
    std::mutex close_mutex_;
    std::thread thread_;
};

}  // namespace stagecoach
