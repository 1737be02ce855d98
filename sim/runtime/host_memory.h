// The part of the process's own memory that the device may touch: an IOMMU with octet granularity.
// From kDeviceMemoryBase on it is the memory of the device, which is somewhere in the process, too.
#pragma once

#include <algorithm>
#include <utility>

#include "common.h"
#include "shared.h"

namespace stagecoach {

class HostMemory {
  public:
    // `own` is where the process has the memory of the device, of so many octets, which may be 0.
    HostMemory(std::uint64_t own, std::uint64_t own_octets) : own_(own) {
        if (own_octets > 0) map(kDeviceMemoryBase, own_octets);
    }

    void map(std::uint64_t address, std::uint64_t octets) {
        regions_.emplace_back(address, address + octets);
        merge();
    }

    // Returns false if this very region is not mapped.
    bool unmap(std::uint64_t address, std::uint64_t octets) {
        const auto found = std::find(regions_.begin(), regions_.end(),
                                     std::make_pair(address, address + octets));
        if (found == regions_.end()) return false;
        regions_.erase(found);
        merge();
        return true;
    }

    // Reads the aligned word. Octets outside every region read as 0: AXI reads have no strobes, so
    // the device always reads whole words. False if no octet of it is mapped.
    bool read_word(std::uint64_t address, Word& value) {
        if (contains(address, kWordOctets, read_hint_)) {
            value = __atomic_load_n(reinterpret_cast<const Word*>(locate(address)), __ATOMIC_ACQUIRE);
            return true;
        }
        bool any = false;
        value = 0;
        for (unsigned octet = 0; octet < kWordOctets; ++octet) {
            if (!contains(address + octet, 1, read_hint_)) continue;
            any = true;
            value |= static_cast<Word>(
                         *reinterpret_cast<const volatile std::uint8_t*>(locate(address) + octet))
                     << (8 * octet);
        }
        return any;
    }

    // Whether all strobed octets of the aligned word are mapped.
    bool writable(std::uint64_t address, std::uint8_t strobes) {
        if (strobes == kWordStrobes && contains(address, kWordOctets, write_hint_)) return true;
        for (unsigned octet = 0; octet < kWordOctets; ++octet) {
            if ((strobes >> octet & 1) && !contains(address + octet, 1, write_hint_)) return false;
        }
        return true;
    }

    // Writes the strobed octets of the aligned word. False, and nothing is written, if one of them
    // is not mapped.
    bool write_word(std::uint64_t address, Word value, std::uint8_t strobes) {
        if (strobes == kWordStrobes && contains(address, kWordOctets, write_hint_)) {
            __atomic_store_n(reinterpret_cast<Word*>(locate(address)), value, __ATOMIC_RELEASE);
            return true;
        }
        if (!writable(address, strobes)) return false;
        for (unsigned half = 0; half < kWordOctets / 4; ++half) {
            const unsigned enabled = strobes >> (4 * half) & 0xf;
            const std::uint64_t at = locate(address) + 4 * half;
            const auto word = static_cast<std::uint32_t>(value >> (32 * half));
            if (enabled == 0xf) {
                __atomic_store_n(reinterpret_cast<std::uint32_t*>(at), word, __ATOMIC_RELEASE);
                continue;
            }
            for (unsigned octet = 0; octet < 4; ++octet) {
                if (enabled >> octet & 1) {
                    __atomic_store_n(reinterpret_cast<std::uint8_t*>(at + octet),
                                     static_cast<std::uint8_t>(word >> (8 * octet)),
                                     __ATOMIC_RELEASE);
                }
            }
        }
        return true;
    }

    std::size_t regions() const { return regions_.size(); }

  private:
    using Interval = std::pair<std::uint64_t, std::uint64_t>;  // first octet, octet after the last

    // Where the process has what the device has at an address.
    std::uint64_t locate(std::uint64_t address) const {
        return address < kDeviceMemoryBase ? address : address - kDeviceMemoryBase + own_;
    }

    bool contains(std::uint64_t address, std::uint64_t octets, std::size_t& hint) const {
        if (hint < merged_.size() && address >= merged_[hint].first &&
            address < merged_[hint].second) {
            return octets <= merged_[hint].second - address;
        }
        auto above = std::upper_bound(
            merged_.begin(), merged_.end(), address,
            [](std::uint64_t value, const Interval& interval) { return value < interval.first; });
        if (above == merged_.begin()) return false;
        --above;
        if (address >= above->second) return false;
        hint = static_cast<std::size_t>(above - merged_.begin());
        return octets <= above->second - address;
    }

    // Regions may overlap (the same buffer registered twice): what counts is their union.
    void merge() {
        merged_ = regions_;
        std::sort(merged_.begin(), merged_.end());
        std::size_t kept = 0;
        for (std::size_t i = 0; i < merged_.size(); ++i) {
            if (kept > 0 && merged_[i].first <= merged_[kept - 1].second) {
                merged_[kept - 1].second = std::max(merged_[kept - 1].second, merged_[i].second);
            } else {
                merged_[kept++] = merged_[i];
            }
        }
        merged_.resize(kept);
        read_hint_ = write_hint_ = 0;
    }

    const std::uint64_t own_;
    std::vector<Interval> regions_;
    std::vector<Interval> merged_;
    std::size_t read_hint_ = 0;
    std::size_t write_hint_ = 0;
};

}  // namespace stagecoach
