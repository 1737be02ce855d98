// The simulation thread: cycles while something happens, sleep while nothing does.
#include "device.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "verilated.h"

namespace stagecoach {

namespace {
// 156.25 MHz, for the waveform only.
constexpr std::uint64_t kHalfPeriodPicoseconds = 3200;

int make_wake_descriptor() {
    const int descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    return descriptor;
}

std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return result + "\"";
}

// Why the last call of this thread failed.
thread_local std::string call_message;
}  // namespace

Device::Device(const Settings& settings)
    : settings_(settings),
      wake_(make_wake_descriptor()),
      recorder_(settings.record, settings.record_limit),
      memory_(settings.memory, settings.memory_octets),
      context_(std::make_unique<VerilatedContext>()),
      link_(std::make_unique<Link>(settings, wake_, recorder_, faults_)) {
    context_->traceEverOn(!settings_.trace_path.empty());
    context_->randReset(0);
    model_ = std::make_unique<Vrnic>(context_.get(), "rnic");
    for (const AxiPort& port : memory_ports(*model_)) {
        axi_.emplace_back(port, memory_, faults_, settings.read_latency, settings.write_latency,
                          settings.late_writes);
    }
    if (!settings_.trace_path.empty()) {
#ifdef STAGECOACH_TRACE
        trace_ = std::make_unique<VerilatedFstC>();
        trace_->set_time_unit("ps");
        trace_->set_time_resolution("ps");
        model_->trace(trace_.get(), 99);
        trace_->open(settings_.trace_path.c_str());
        if (!trace_->isOpen()) {
            throw std::runtime_error("the waveform file " + settings_.trace_path +
                                     " cannot be written");
        }
#else
        throw std::runtime_error("this device was built without waveforms");
#endif
    }
    if (settings_.paced) {
        enter_model();
        reset();
    } else {
        thread_ = std::thread(&Device::thread_main, this);
    }
}

Device::~Device() {
    close(0);
    ::close(wake_);
}

Status Device::submit(const TaskPointer& task) {
    if (settings_.paced) return carry_out(task);
    std::unique_lock<std::mutex> lock(mutex_);
    if (ended_) {
        call_message = message_;
        return ended_status_;
    }
    tasks_.push_back(task);
    tasks_pending_.store(true);
    if (sleeping_.load() && !wake()) return Status::kFailed;
    changed_.wait(lock, [&] { return task->done; });
    call_message = task->message.empty() ? message_ : task->message;
    return task->status;
}

// What a caller asks of a paced device, between two calls of `pace`.
Status Device::carry_out(const TaskPointer& task) {
    const std::lock_guard<std::recursive_mutex> pacing(pace_mutex_);
    if (ended_) {
        call_message = message_;
        return ended_status_;
    }
    task->status = Status::kOkay;
    try {
        if (!task->action) throw std::invalid_argument("a paced device takes begin_access");
        task->action(*task);
        if (task->deferred) {
            running_.clear();
            throw std::invalid_argument("a paced device runs in `pace` alone");
        }
    } catch (const std::invalid_argument& error) {
        task->message = error.what();
        task->status = Status::kInvalid;
    }
    call_message = task->message;
    return task->status;
}

Status Device::begin_access(bool write, std::uint32_t address, std::uint32_t value) {
    return call([=, this](Task&) {
        if (paced_access_) throw std::invalid_argument("an access is under way");
        paced_access_ = std::make_shared<Task>();
        paced_access_->write = write;
        paced_access_->address = address;
        paced_access_->value = value;
        accesses_.push_back(paced_access_);
    });
}

Status Device::pace(std::uint64_t time_ps, std::uint64_t cycles, Paced& result) {
    const std::lock_guard<std::recursive_mutex> pacing(pace_mutex_);
    if (ended_) {
        call_message = message_;
        return ended_status_;
    }
    try {
        enter_model();
        running_since_ = std::chrono::steady_clock::now();
        link_->begin(time_ps, cycle_ + 1);  // the inputs of the next cycle are set first
        if (link_->poll(0, cycle_)) active_until_ = std::max(active_until_, cycle_ + kSettle);
        for (const Cycle end = cycle_ + cycles; cycle_ < end;) step();
        link_->tell();
        cycles_.store(cycle_, std::memory_order_relaxed);
        running_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                                          running_since_)
                                .count();
    } catch (const std::exception& error) {
        end_thread(Status::kFailed, error.what());
        call_message = message_;
        return Status::kFailed;
    }
    result = Paced{};
    if (paced_access_ && paced_access_->done) {
        result.access_done = 1;
        result.access_status = static_cast<std::uint32_t>(paced_access_->status);
        result.access_value = paced_access_->value;
        paced_access_.reset();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    Interrupt& rnic = interrupts_[static_cast<unsigned>(Irq::kRnic)];
    Interrupt& network = interrupts_[static_cast<unsigned>(Irq::kNetwork)];
    result.irq = rnic.pending();
    result.network_irq = network.pending();
    rnic.rose = network.rose = false;
    result.busy = busy();
    result.cycle = cycle_;
    result.due_us = link_->due_us();
    return Status::kOkay;
}

bool Device::busy() const {
    return cycle_ < active_until_ || access_ || !accesses_.empty() || memory_busy() ||
           link_->busy();
}

bool Device::memory_busy() const {
    return std::any_of(axi_.begin(), axi_.end(), [](const AxiMemory& each) { return each.busy(); });
}

bool Device::wake() {
    const std::uint64_t one = 1;
    return write(wake_, &one, sizeof one) >= 0 || errno == EAGAIN;
}

Status Device::call(std::function<void(Task&)> action) {
    auto task = std::make_shared<Task>();
    task->action = std::move(action);
    return submit(task);
}

void Device::finish(const TaskPointer& task, Status status) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        task->status = status;
        task->done = true;
    }
    changed_.notify_all();
}

Status Device::read_register(std::uint32_t address, std::uint32_t& value) {
    auto task = std::make_shared<Task>();
    task->address = address;
    const Status status = submit(task);
    value = task->value;
    return status;
}

Status Device::write_register(std::uint32_t address, std::uint32_t value) {
    auto task = std::make_shared<Task>();
    task->write = true;
    task->address = address;
    task->value = value;
    return submit(task);
}

Status Device::map(std::uint64_t address, std::uint64_t octets) {
    return call([=, this](Task&) { memory_.map(address, octets); });
}

Status Device::unmap(std::uint64_t address, std::uint64_t octets) {
    return call([=, this](Task&) {
        if (!memory_.unmap(address, octets)) throw std::invalid_argument("the region is not mapped");
    });
}

Status Device::attach(unsigned connection, int descriptor, unsigned emss) {
    return call([=, this](Task&) { link_->attach(connection, descriptor, emss, cycle_); });
}

Status Device::detach(unsigned connection, double seconds, bool give_back, int& descriptor) {
    auto task = std::make_shared<Task>();
    // The result outlives this call if the thread ends first, hence not a reference to the caller.
    auto returned = std::make_shared<int>(-1);
    std::weak_ptr<Task> weak = task;
    task->action = [=, this](Task& self) {
        leave_step();  // its end is a matter of seconds
        self.deferred = true;
        try {
            link_->detach(connection, seconds, give_back, cycle_, [=, this](bool flushed, int given) {
                *returned = given;
                if (const auto waiting = weak.lock()) {
                    std::erase(deferred_, waiting);
                    finish(waiting, flushed ? Status::kOkay : Status::kNotFlushed);
                }
            });
        } catch (...) {
            self.deferred = false;
            throw;
        }
    };
    const Status status = submit(task);
    descriptor = *returned;
    return status;
}

Status Device::run_cycles(std::uint64_t cycles) {
    auto task = std::make_shared<Task>();
    std::weak_ptr<Task> weak = task;
    task->action = [=, this](Task& self) {
        self.deferred = true;
        running_.emplace_back(cycle_ + cycles, weak);
        active_until_ = std::max(active_until_, cycle_ + cycles);
    };
    return submit(task);
}

Status Device::run_in_step(int descriptor) {
    return call([=, this](Task&) {
        if (step_) throw std::invalid_argument("the device keeps in step already");
        step_ = std::make_unique<Step>(descriptor, wake_);
        step_end_ = cycle_;
        looked_ = false;
        in_step_.store(true);
    });
}

Status Device::run_freely() {
    return call([this](Task&) { leave_step(); });
}

Cycle Device::cycles() {
    auto exact = std::make_shared<Cycle>();
    if (in_step_.load() && call([=, this](Task&) { *exact = cycle_; }) == Status::kOkay) {
        return *exact;
    }
    return cycles_.load(std::memory_order_relaxed);
}

Status Device::hold(unsigned axi_channels, bool transmit) {
    return call([=, this](Task&) {
        for (AxiMemory& each : axi_) each.hold(axi_channels);
        link_->hold_transmit(transmit);
    });
}

Status Device::lose_after(unsigned connection, std::uint64_t octets) {
    return call([=, this](Task&) { link_->lose_after(connection, octets); });
}

Status Device::fail_access(bool write, std::uint64_t address, std::uint64_t octets,
                           std::uint64_t skip, unsigned response) {
    return call([=, this](Task&) {
        for (AxiMemory& each : axi_) {
            each.fail(write, address, octets, skip, static_cast<std::uint8_t>(response));
        }
    });
}

int Device::wait_irq(Irq which, double seconds) {
    std::unique_lock<std::mutex> lock(mutex_);
    Interrupt& interrupt = interrupts_[static_cast<unsigned>(which)];
    const auto ready = [&] { return ended_ || stop_.load() || interrupt.pending(); };
    ++interrupt.waiters;
    if (in_step_.load()) wake();
    if (seconds < 0) {
        changed_.wait(lock, ready);
    } else {
        changed_.wait_for(lock, std::chrono::duration<double>(seconds), ready);
    }
    --interrupt.waiters;
    if (interrupt.pending()) {
        interrupt.rose = false;
        return 1;
    }
    return ended_ || stop_.load() ? -1 : 0;
}

void Device::wake_irq(Irq which) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        interrupts_[static_cast<unsigned>(which)].rose = true;
    }
    changed_.notify_all();
}

void Device::note_irq(Irq which, bool level) {
    bool& before = irqs_[static_cast<unsigned>(which)];
    if (level == before) return;
    before = level;
    if (which == Irq::kRnic) irq_edges_ += level;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        Interrupt& interrupt = interrupts_[static_cast<unsigned>(which)];
        interrupt.level = level;
        interrupt.rose |= level;
    }
    if (level) changed_.notify_all();
}

Status Device::take_record(std::vector<std::uint8_t>& record) {
    auto taken = std::make_shared<std::vector<std::uint8_t>>();
    Status status = call([=, this](Task&) { *taken = recorder_.take(); });
    if (status == Status::kClosed || status == Status::kFailed) {
        // The thread has ended, so nobody else touches the record.
        *taken = recorder_.take();
        status = Status::kOkay;
    }
    record.swap(*taken);
    return status;
}

std::string Device::statistics() {
    auto text = std::make_shared<std::string>();
    const Status status = call([=, this](Task&) { *text = describe(); });
    if (status == Status::kOkay) return *text;
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_statistics_;
}

std::string Device::error() const { return call_message; }

void Device::close(double seconds) {
    const std::lock_guard<std::mutex> closing(close_mutex_);
    if (settings_.paced) {
        const std::lock_guard<std::recursive_mutex> pacing(pace_mutex_);
        if (ended_) return;
        enter_model();
        end_thread(Status::kClosed, "the device is closed");
        return;
    }
    if (!thread_.joinable()) return;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        close_seconds_ = seconds;
        stop_.store(true);
        tasks_pending_.store(true);
        const std::uint64_t one = 1;
        if (write(wake_, &one, sizeof one) < 0) message_ = "the device could not be woken";
    }
    changed_.notify_all();
    thread_.join();
}

void Device::thread_main() {
    Status status = Status::kClosed;
    std::string message = "the device is closed";
    enter_model();
    try {
        simulate();
        link_->close_all(close_seconds_, cycle_);
    } catch (const std::exception& error) {
        status = Status::kFailed;
        message = error.what();
    } catch (...) {
        status = Status::kFailed;
        message = "unknown exception in the simulation thread";
    }
    end_thread(status, message);
}

void Device::enter_model() {
#ifdef CLOCKS
    // The model's destructor takes its scopes from the context of its thread.
    Verilated::threadContextp(context_.get());
#endif
}

void Device::end_thread(Status status, const std::string& message) {
    std::string statistics = describe();
    try {
        model_->final();
#ifdef STAGECOACH_TRACE
        if (trace_) trace_->close();
        trace_.reset();
#endif
    } catch (...) {
        // The first error is the one to report.
    }
    model_.reset();
    link_.reset();
    step_.reset();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ended_ = true;
        ended_status_ = status;
        message_ = message;
        last_statistics_ = std::move(statistics);
        for (const TaskPointer& task : accesses_) tasks_.push_back(task);
        for (const TaskPointer& task : deferred_) tasks_.push_back(task);
        if (access_) tasks_.push_back(access_);
        for (const TaskPointer& task : tasks_) {
            task->status = status;
            task->done = true;
        }
        tasks_.clear();
    }
    accesses_.clear();
    deferred_.clear();
    access_.reset();
    changed_.notify_all();
}

void Device::take_tasks() {
    std::deque<TaskPointer> taken;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        tasks_pending_.store(false);
        taken.swap(tasks_);
    }
    for (const TaskPointer& task : taken) {
        if (!task->action) {
            accesses_.push_back(task);
            continue;
        }
        Status status = Status::kOkay;
        deferred_.push_back(task);
        try {
            task->action(*task);
        } catch (const std::invalid_argument& error) {
            task->message = error.what();
            status = Status::kInvalid;
        }
        if (!task->deferred) {
            std::erase(deferred_, task);
            finish(task, status);
        }
    }
    active_until_ = std::max(active_until_, cycle_ + kSettle);
}

void Device::finish_runs() {
    std::erase_if(running_, [this](const auto& run) {
        if (run.first > cycle_) return false;
        if (const auto task = run.second.lock()) {
            std::erase(deferred_, task);
            finish(task, Status::kOkay);
        }
        return true;
    });
}

void Device::reset() {
    running_since_ = std::chrono::steady_clock::now();
    model_->clk = 0;
    model_->rst = 1;
    registers_.drive(*model_);
    for (AxiMemory& each : axi_) each.drive(0);
    link_->drive(*model_, 0);
    model_->eval();
    active_until_ = kResetCycles + kSettle;
}

void Device::simulate() {
    reset();
    Cycle next_poll = 0;
    while (true) {
        if (tasks_pending_.load(std::memory_order_acquire)) {
            if (stop_.load()) return;
            take_tasks();
        }
        if (step_) {
            advance_in_step();
            next_poll = cycle_;
            continue;
        }
        if (cycle_ >= next_poll) {
            next_poll = cycle_ + kPollPeriod;
            cycles_.store(cycle_, std::memory_order_relaxed);
            if (!running_.empty()) finish_runs();
            if (link_->any_socket() && link_->poll(0, cycle_)) active_until_ = cycle_ + kSettle;
        }
        step();
        if (cycle_ >= active_until_) {
            if (access_ || !running_.empty() || memory_busy() || link_->busy()) {
                active_until_ = cycle_ + kSettle;
            } else {
                sleep();
                next_poll = cycle_;
            }
        }
    }
}

// At most one cycle. In step a period ends at two places to wait: at the first, both have sent
// all that they send in it; at the second, both have looked at their sockets. So what is received
// depends on cycles alone.
void Device::advance_in_step() {
    if (!awaited()) return stand_still();
    if (cycle_ >= step_end_) {
        if (!looked_) {
            if (!met()) return;
            link_->poll(0, cycle_);
            looked_ = true;
        }
        if (!met()) return;
        looked_ = false;
        step_end_ = cycle_ + kStepPeriod;
    }
    step();
    if (!running_.empty()) finish_runs();
}

// Waits for the other device. False if a task has to be taken before, or that device has gone.
bool Device::met() {
    sleeping_.store(true);
    const auto result = tasks_pending_.load() ? Step::Result::kWoken : step_->meet();
    sleeping_.store(false);
    if (result == Step::Result::kWoken) take_wakes();
    if (result == Step::Result::kGone) leave_step();
    return result == Step::Result::kMet;
}

// Whether a caller waits for something that takes cycles.
bool Device::awaited() {
    if (access_ || !accesses_.empty() || !running_.empty()) return true;
    const std::lock_guard<std::mutex> lock(mutex_);
    const Interrupt& rnic = interrupts_[static_cast<unsigned>(Irq::kRnic)];
    return rnic.waiters != 0 && !rnic.pending();
}

void Device::stand_still() {
    cycles_.store(cycle_, std::memory_order_relaxed);
    sleeping_.store(true);
    while (!tasks_pending_.load() && !awaited()) {
        pollfd watched{wake_, POLLIN, 0};
        ::poll(&watched, 1, -1);
        take_wakes();
    }
    sleeping_.store(false);
}

void Device::take_wakes() {
    std::uint64_t wakes;
    while (read(wake_, &wakes, sizeof wakes) > 0) {
    }
}

void Device::leave_step() {
    if (!step_) return;
    step_.reset();
    in_step_.store(false);
    active_until_ = cycle_ + kSettle;
}

// One clock period: takes the outputs of this cycle, sets the inputs of the next one, which
// the harness passes on with the edge, and evaluates once. The falling edge moves nothing.
void Device::step() {
    Vrnic& model = *model_;
    if (cycle_ > kResetCycles) {
        // What the device gets counts as well: it may do nothing until the last word is there.
        bool active = Link::active(model);
        for (const AxiMemory& each : axi_) active |= each.active();
        if (active) active_until_ = std::max(active_until_, cycle_ + kSettle);
        for (AxiMemory& each : axi_) each.sample(cycle_);
        link_->sample(model, cycle_);
        // Before the access ends: who has acknowledged the interrupt must not see its old level.
        note_irq(Irq::kRnic, model.irq);
        note_irq(Irq::kNetwork, Link::interrupt(model));
        std::uint32_t value = 0;
        const auto result = registers_.sample(model, cycle_, value);
        if (result != RegisterMaster::Result::kNone) {
            active_until_ = std::max(active_until_, cycle_ + kSettle);
            access_->value = value;
            finish(access_, result == RegisterMaster::Result::kOkay    ? Status::kOkay
                            : result == RegisterMaster::Result::kError ? Status::kBusError
                                                                       : Status::kTimeout);
            access_.reset();
        }
    }
    if (!access_ && !accesses_.empty() && cycle_ > kResetCycles) {
        access_ = accesses_.front();
        accesses_.pop_front();
        registers_.start(access_->write, access_->address, access_->value, cycle_);
    }
    ++cycle_;
    model.rst = cycle_ <= kResetCycles;
    registers_.drive(model);
    for (AxiMemory& each : axi_) each.drive(cycle_);
    link_->drive(model, cycle_);
#ifdef CLOCKS
    input_clocks_.drive(model);
    // Both edges count. Blocks in which this one would change nothing do without.
    model.clk = !model.clk;
    model.clocks ^= cycle_ <= kResetCycles ? ~std::uint64_t{0} >> (64 - CLOCKS) : model.moves;
    model.eval();
#else
    model.clk = 1;
    model.eval();
#ifdef STAGECOACH_TRACE
    if (trace_) trace_->dump(2 * cycle_ * kHalfPeriodPicoseconds);
#endif
    model.clk = 0;
    model.eval();
#ifdef STAGECOACH_TRACE
    if (trace_) trace_->dump((2 * cycle_ + 1) * kHalfPeriodPicoseconds);
#endif
#endif
}

void Device::sleep() {
    ++sleeps_;
    cycles_.store(cycle_, std::memory_order_relaxed);
    running_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - running_since_).count();
    while (true) {
        // The adder of a task looks at `sleeping_` afterwards: one of the two sees the other.
        sleeping_.store(true);
        if (tasks_pending_.load()) break;
        if (link_->rest(cycle_)) break;
    }
    sleeping_.store(false);
    running_since_ = std::chrono::steady_clock::now();
    active_until_ = cycle_ + kSettle;
}

std::string Device::describe() const {
    timespec cpu{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    double running = running_seconds_;
    if (!settings_.paced && !sleeping_.load()) {
        running += std::chrono::duration<double>(std::chrono::steady_clock::now() - running_since_)
                       .count();
    }
    AxiMemory::Counters c;
    for (const AxiMemory& each : axi_) c += each.counters;
    std::string text = "{\"cycles\":" + std::to_string(cycle_) +
                       ",\"running_seconds\":" + std::to_string(running) +
                       ",\"cpu_seconds\":" +
                       std::to_string(static_cast<double>(cpu.tv_sec) + 1e-9 * cpu.tv_nsec) +
                       ",\"sleeps\":" + std::to_string(sleeps_) +
                       ",\"irq_edges\":" + std::to_string(irq_edges_) +
                       ",\"regions\":" + std::to_string(memory_.regions()) +
                       ",\"read_bursts\":" + std::to_string(c.read_bursts) +
                       ",\"read_beats\":" + std::to_string(c.read_beats) +
                       ",\"read_errors\":" + std::to_string(c.read_errors) +
                       ",\"write_bursts\":" + std::to_string(c.write_bursts) +
                       ",\"write_beats\":" + std::to_string(c.write_beats) +
                       ",\"write_errors\":" + std::to_string(c.write_errors) +
                       ",\"record_truncated\":" + (recorder_.truncated() ? "true" : "false") +
                       ",\"fault_count\":" + std::to_string(faults_.count()) + ",\"faults\":[";
    for (std::size_t i = 0; i < faults_.kept().size(); ++i) {
        text += (i ? "," : "") + quoted(faults_.kept()[i]);
    }
    return text + "]" + (link_ ? "," + link_->statistics() : "") + "}";
}

}  // namespace stagecoach

// Verilator's runtime ends the process on errors; here they end the simulation thread only.
void vl_finish(const char* file, int line, const char*) VL_MT_UNSAFE {
    throw std::runtime_error(std::string("$finish at ") + file + ":" + std::to_string(line));
}
void vl_stop(const char* file, int line, const char*) VL_MT_UNSAFE {
    throw std::runtime_error(std::string("$stop at ") + file + ":" + std::to_string(line));
}
void vl_fatal(const char* file, int line, const char*, const char* message) VL_MT_UNSAFE {
    throw std::runtime_error(std::string(message) + " (" + file + ":" + std::to_string(line) + ")");
}
