"""What a compiled device is wrapped in: Verilog that registers its inputs, C++ that clocks them.

The runtime puts the inputs of the next cycle on the ports of the harness before the clock rises.
They reach the device with the edge, together with its own new state, so one evaluation settles
everything. With inputs straight on the device, all logic after them (after `rst`: almost all) would
be evaluated twice more in every cycle.

With CLOCKS the device is that of `sim/resting.py`, with so many clocks. The registers of each port
have one with two active edges, too, which the runtime turns when an input of the port changes: what
follows a quiet port is not evaluated.
"""

from collections.abc import Iterator
from dataclasses import dataclass

_DATA = "DATA_WIDTH"
"""Bits of the ports to host memory and of the LLP: 32, 64 or 128."""


@dataclass(frozen=True)
class Port:
    """Signals that come and go together.

    Each is a name, and its bits after a colon unless it has one. `name` is that of the group, or
    empty for signals without one; `clock` that of its input registers, the group's if it is empty.
    """

    name: str
    inputs: str
    outputs: str = ""
    clock: str = ""

    def signals(self, listed: str) -> Iterator[tuple[str, str]]:
        """Whole names and bits of the inputs, or of the outputs."""
        for signal in listed.split():
            name, _, width = signal.partition(":")
            yield f"{self.name}__{name}" if self.name else name, width or "1"

    @property
    def clocked_by(self) -> str:
        """The clock of its input registers, where each port has one."""
        return f"clk_{self.clock or self.name}"


@dataclass(frozen=True)
class Harness:
    """Module `device` in a module `harness`. The first port is the reset: 1 at the start."""

    device: str
    ports: tuple[Port, ...]

    @property
    def verilog(self) -> str:
        """The module, with parameters CONNECTION_BITS and DATA_WIDTH."""
        declared = ["input clk"]
        clocked = ["input [`CLOCKS-1:0] clocks", "output [`CLOCKS-1:0] moves"]
        clocked += [f"input {port.clocked_by}" for port in self.ports if port.inputs]
        registers, edges, joined = [], [], []
        for port in self.ports:
            moved = []
            for name, width in port.signals(port.inputs):
                declared.append(f"input {_range(width)}{name}")
                registers.append(f"    reg {_range(width)}{name}_now;")
                moved.append(f"        {name}_now <= {name};")
                joined.append(f".{name}({name}_now)")
            for name, width in port.signals(port.outputs):
                declared.append(f"output {_range(width)}{name}")
                joined.append(f".{name}({name})")
            if moved:
                edges += [f"    always @(`TURN({port.clocked_by})) begin", *moved, "    end"]
        reset = self.ports[0].inputs
        return "\n".join(
            [
                "`ifdef CLOCKS",
                "`define TURN(clock) edge clock",
                "`else",
                "`define TURN(clock) posedge clk",
                "`endif",
                "module harness #(parameter CONNECTION_BITS = 6, parameter DATA_WIDTH = 64) (",
                "`ifdef CLOCKS",
                *(f"    {each}," for each in clocked),
                "`endif",
                ",\n".join(f"    {each}" for each in declared),
                ");",
                *registers,
                f"    initial {reset}_now = 1;",
                *edges,
                f"    {self.device} device (",
                "`ifdef CLOCKS",
                "        .clk_free(clk), .clocks(clocks), .moves_all(moves),",
                "`else",
                "        .clk(clk),",
                "`endif",
                ",\n".join(f"        {each}" for each in joined),
                "    );",
                "endmodule",
                "",
            ]
        )

    @property
    def header(self) -> str:
        """A class that turns the clocks of ports of which an input changes."""
        turned, kept = [], []
        for port in self.ports:
            values = []
            for name, width in port.signals(port.inputs):
                signal = f"model.{name.replace('__', '___05F')}"
                both = f"low({signal}), high({signal})"
                values.append(both if width == _DATA else signal)
            if values:
                count = len(values) + sum("low(" in each for each in values)
                kept.append(f"    Values<{count}> {port.clocked_by}_{{}};")
                inputs = ", ".join(values)
                turned.append(
                    f"        turn(model.{port.clocked_by}, {port.clocked_by}_, {{{inputs}}});"
                )
        # What the registers of the harness hold: the reset is 1 from the start, all else 0.
        kept[0] = kept[0].replace("{}", "{1}")
        return _HEADER.format(turned="\n".join(turned), kept="\n".join(kept))


def _range(width: str) -> str:
    return "" if width == "1" else f"[{width}-1:0] "


_HEADER = """// Made by sim/harness.py.
#pragma once

#include <array>

#include "common.h"

namespace stagecoach {{

class InputClocks {{
  public:
    // Once per cycle, when all inputs are on the model's ports.
    void drive(Vrnic& model) {{
{turned}
    }}

  private:
    template <std::size_t count>
    using Values = std::array<std::uint64_t, count>;

    static std::uint64_t low(const DataPort& port) {{ return read_port(port).words[0]; }}
    static std::uint64_t high(const DataPort& port) {{
        if constexpr (kWords == 1) return 0;
        return read_port(port).words[kWords - 1];
    }}

    template <std::size_t count>
    static void turn(CData& clock, Values<count>& last, const Values<count>& now) {{
        if (now == last) return;
        last = now;
        clock = !clock;
    }}

{kept}
}};

}}  // namespace stagecoach
"""


def _axi(name: str) -> Port:
    return Port(
        name,
        f"awready wready bid bresp:2 bvalid arready rid rdata:{_DATA} rresp:2 rlast rvalid",
        "awaddr:64 awlen:8 awsize:3 awburst:2 awid awvalid"
        f" wdata:{_DATA} wstrb:{_DATA}/8 wlast wvalid bready"
        " araddr:64 arlen:8 arsize:3 arburst:2 arid arvalid rready",
    )


RESET = Port("", "rst", clock="rst")

REGISTERS = Port(
    "s_axi",
    "awaddr:12 awprot:3 awvalid wdata:32 wstrb:4 wvalid bready araddr:12 arprot:3 arvalid rready",
    "awready wready bresp:2 bvalid arready rdata:32 rresp:2 rvalid",
)

LLP = Port(
    "llp",
    f"tx_ready rx_request_ready rx_valid rx_data:{_DATA} rx_release_ready"
    " event_valid event_connection:CONNECTION_BITS event_kind:2 event_value:32",
    f"tx_valid tx_connection:CONNECTION_BITS tx_data:{_DATA} tx_octets:$clog2({_DATA}/8+1)"
    " tx_first tx_last tx_close rx_request_valid rx_request_connection:CONNECTION_BITS"
    " rx_request_position:32 rx_request_octets:17 rx_ready rx_release_valid"
    " rx_release_connection:CONNECTION_BITS rx_release_position:32 event_ready",
)

RECEIVE = Port("rx", "tvalid tdata:64 tkeep:8 tlast tuser", "tready")
TRANSMIT = Port("tx", "tready", "tvalid tdata:64 tkeep:8 tlast tuser")

RNIC_HARNESS = Harness("rnic", (RESET, REGISTERS, _axi("m_axi"), LLP, Port("", "", "irq")))

NIC_HARNESS = Harness(
    "nic",
    (
        *(RESET, REGISTERS, _axi("m_axi"), _axi("t_axi"), RECEIVE, TRANSMIT),
        Port("", "time_us:32", "deadline:32 armed irq network_irq", clock="time"),
    ),
)
