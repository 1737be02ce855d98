// AXI4-Lite master: one register access at a time, in the order in which they were asked for.
#pragma once

#include "common.h"

namespace stagecoach {

class RegisterMaster {
  public:
    enum class Result { kNone, kOkay, kError, kTimeout };

    bool idle() const { return state_ == State::kIdle; }

    void start(bool write, std::uint32_t address, std::uint32_t value, Cycle cycle) {
        address_ = address;
        value_ = value;
        state_ = write ? State::kWriting : State::kReading;
        address_valid_ = true;
        data_valid_ = write;
        started_ = cycle;
    }

    void drive(Vrnic& model) const {
        const bool writing = state_ == State::kWriting;
        model.PORT(s_axi, awvalid) = writing && address_valid_;
        model.PORT(s_axi, wvalid) = writing && data_valid_;
        model.PORT(s_axi, bready) = writing;
        model.PORT(s_axi, arvalid) = state_ == State::kReading && address_valid_;
        model.PORT(s_axi, rready) = state_ == State::kReading;
        if (state_ == State::kIdle) return;
        model.PORT(s_axi, awaddr) = address_;
        model.PORT(s_axi, araddr) = address_;
        model.PORT(s_axi, wdata) = value_;
        model.PORT(s_axi, wstrb) = 0xf;
        model.PORT(s_axi, awprot) = 0;
        model.PORT(s_axi, arprot) = 0;
    }

    // Returns how the access ended, kNone while it lasts. A read's value is in `value`.
    Result sample(const Vrnic& model, Cycle cycle, std::uint32_t& value) {
        if (state_ == State::kIdle) return Result::kNone;
        Result result = Result::kNone;
        if (state_ == State::kWriting) {
            if (model.PORT(s_axi, bvalid) && !address_valid_ && !data_valid_) {
                result = model.PORT(s_axi, bresp) == 0 ? Result::kOkay : Result::kError;
            }
            if (model.PORT(s_axi, awready)) address_valid_ = false;
            if (model.PORT(s_axi, wready)) data_valid_ = false;
        } else {
            if (model.PORT(s_axi, rvalid) && !address_valid_) {
                value = model.PORT(s_axi, rdata);
                result = model.PORT(s_axi, rresp) == 0 ? Result::kOkay : Result::kError;
            }
            if (model.PORT(s_axi, arready)) address_valid_ = false;
        }
        if (result == Result::kNone && cycle - started_ > kTimeoutCycles) result = Result::kTimeout;
        if (result != Result::kNone) state_ = State::kIdle;
        return result;
    }

  private:
    enum class State { kIdle, kWriting, kReading };
    static constexpr Cycle kTimeoutCycles = 100000;

    State state_ = State::kIdle;
    bool address_valid_ = false, data_valid_ = false;
    std::uint32_t address_ = 0, value_ = 0;
    Cycle started_ = 0;
};

}  // namespace stagecoach
