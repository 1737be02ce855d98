// The C interface that sim/device.py calls through ctypes. No exception leaves it.
#include <cstring>
#include <exception>

#include "device.h"

using stagecoach::Device;
using stagecoach::Irq;
using stagecoach::Settings;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
void copy_text(const std::string& text, char* buffer, std::size_t size) {
    if (size == 0) return;
    const std::size_t count = std::min(text.size(), size - 1);
    std::memcpy(buffer, text.data(), count);
    buffer[count] = 0;
}
}  // namespace

// Returns a null pointer, and why in `error`, if the device cannot be made. The socket `network`,
// if it is not -1, belongs to the device on success. `memory` stays the caller's.
EXPORT Device* stagecoach_create(unsigned connections, unsigned read_latency,
                                 unsigned write_latency, int late_writes, int record,
                                 std::uint64_t record_limit,
                                 const char* trace_path, int network, int paced,
                                 std::int64_t clock_offset_ns, std::uint64_t memory,
                                 std::uint64_t memory_octets, char* error,
                                 std::size_t error_size) {
    try {
        return new Device(Settings{connections, read_latency, write_latency, late_writes != 0,
                                   record != 0, record_limit, trace_path ? trace_path : "", network,
                                   paced != 0, clock_offset_ns, memory, memory_octets});
    } catch (const std::exception& exception) {
        copy_text(exception.what(), error, error_size);
        return nullptr;
    }
}

// Flushes sockets for at most `seconds` and ends the thread. Other calls may still be under way:
// they return with an error.
EXPORT void stagecoach_close(Device* device, double seconds) { device->close(seconds); }

// No other call may be under way.
EXPORT void stagecoach_destroy(Device* device) { delete device; }

EXPORT void stagecoach_error(Device* device, char* buffer, std::size_t size) {
    copy_text(device->error(), buffer, size);
}

EXPORT int stagecoach_read_register(Device* device, std::uint32_t address, std::uint32_t* value) {
    return static_cast<int>(device->read_register(address, *value));
}

EXPORT int stagecoach_write_register(Device* device, std::uint32_t address, std::uint32_t value) {
    return static_cast<int>(device->write_register(address, value));
}

EXPORT int stagecoach_map(Device* device, std::uint64_t address, std::uint64_t octets) {
    return static_cast<int>(device->map(address, octets));
}

EXPORT int stagecoach_unmap(Device* device, std::uint64_t address, std::uint64_t octets) {
    return static_cast<int>(device->unmap(address, octets));
}

// On success the descriptor belongs to the device.
EXPORT int stagecoach_attach(Device* device, unsigned connection, int descriptor, unsigned emss) {
    return static_cast<int>(device->attach(connection, descriptor, emss));
}

EXPORT int stagecoach_detach(Device* device, unsigned connection, double seconds, int give_back,
                             int* descriptor) {
    return static_cast<int>(device->detach(connection, seconds, give_back != 0, *descriptor));
}

EXPORT int stagecoach_pace(Device* device, std::uint64_t time_ps, std::uint64_t cycles,
                           stagecoach::Paced* result) {
    return static_cast<int>(device->pace(time_ps, cycles, *result));
}

EXPORT int stagecoach_begin_access(Device* device, int write, std::uint32_t address,
                                   std::uint32_t value) {
    return static_cast<int>(device->begin_access(write != 0, address, value));
}

EXPORT int stagecoach_run_cycles(Device* device, std::uint64_t cycles) {
    return static_cast<int>(device->run_cycles(cycles));
}

// On success the descriptor belongs to the device.
EXPORT int stagecoach_run_in_step(Device* device, int descriptor) {
    return static_cast<int>(device->run_in_step(descriptor));
}

EXPORT int stagecoach_run_freely(Device* device) { return static_cast<int>(device->run_freely()); }

EXPORT int stagecoach_hold(Device* device, unsigned axi_channels, int transmit) {
    return static_cast<int>(device->hold(axi_channels, transmit != 0));
}

EXPORT int stagecoach_lose_after(Device* device, unsigned connection, std::uint64_t octets) {
    return static_cast<int>(device->lose_after(connection, octets));
}

EXPORT int stagecoach_fail_access(Device* device, int write, std::uint64_t address,
                                  std::uint64_t octets, std::uint64_t skip, unsigned response) {
    return static_cast<int>(device->fail_access(write != 0, address, octets, skip, response));
}

EXPORT int stagecoach_wait_irq(Device* device, unsigned which, double seconds) {
    return device->wait_irq(static_cast<Irq>(which), seconds);
}

EXPORT void stagecoach_wake_irq(Device* device, unsigned which) {
    device->wake_irq(static_cast<Irq>(which));
}

EXPORT std::uint64_t stagecoach_cycles(Device* device) { return device->cycles(); }

// Both hand out memory that `stagecoach_free` gives back.
EXPORT char* stagecoach_statistics(Device* device) {
    const std::string text = device->statistics();
    auto* copy = new char[text.size() + 1];
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

EXPORT char* stagecoach_take_record(Device* device, std::uint64_t* size) {
    std::vector<std::uint8_t> record;
    device->take_record(record);
    auto* copy = new char[record.size() + 1];
    std::memcpy(copy, record.data(), record.size());
    *size = record.size();
    return copy;
}

EXPORT void stagecoach_free(char* memory) { delete[] memory; }
