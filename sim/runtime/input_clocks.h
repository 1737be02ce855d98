// The clocks of the input registers in runtime/harness.v: each turns when an input of its port changes.
#pragma once

#include <array>

#include "common.h"

namespace stagecoach {

class InputClocks {
  public:
    // Once per cycle, when all inputs are on the model's ports.
    void drive(Vrnic& model) {
        turn(model.clk_rst, rst_, {model.rst});
        turn(model.clk_s_axi, s_axi_,
             {model.PORT(s_axi, awvalid), model.PORT(s_axi, awaddr), model.PORT(s_axi, awprot),
              model.PORT(s_axi, wvalid), model.PORT(s_axi, wdata), model.PORT(s_axi, wstrb),
              model.PORT(s_axi, bready), model.PORT(s_axi, arvalid), model.PORT(s_axi, araddr),
              model.PORT(s_axi, arprot), model.PORT(s_axi, rready)});
        turn(model.clk_m_axi, m_axi_,
             {low(model.PORT(m_axi, rdata)), high(model.PORT(m_axi, rdata)), model.PORT(m_axi, rvalid), model.PORT(m_axi, rlast),
              model.PORT(m_axi, rresp), model.PORT(m_axi, rid), model.PORT(m_axi, arready),
              model.PORT(m_axi, awready), model.PORT(m_axi, wready), model.PORT(m_axi, bvalid),
              model.PORT(m_axi, bresp), model.PORT(m_axi, bid)});
        turn(model.clk_llp, llp_,
             {low(model.PORT(llp, rx_data)), high(model.PORT(llp, rx_data)), model.PORT(llp, rx_valid), model.PORT(llp, tx_ready),
              model.PORT(llp, rx_request_ready), model.PORT(llp, rx_release_ready),
              model.PORT(llp, event_valid), model.PORT(llp, event_connection),
              model.PORT(llp, event_kind), model.PORT(llp, event_value)});
    }

  private:
    template <std::size_t count>
    using Values = std::array<std::uint64_t, count>;

    static std::uint64_t low(const DataPort& port) { return read_port(port).words[0]; }
    static std::uint64_t high(const DataPort& port) {
        if constexpr (kWords == 1) return 0;
        return read_port(port).words[kWords - 1];
    }

    template <std::size_t count>
    static void turn(CData& clock, Values<count>& last, const Values<count>& now) {
        if (now == last) return;
        last = now;
        clock = !clock;
    }

    // What the registers in harness.v hold: `rst_now` is 1 from the start, all else 0.
    Values<1> rst_{1};
    Values<11> s_axi_{};
    Values<12> m_axi_{};
    Values<10> llp_{};
};

}  // namespace stagecoach
