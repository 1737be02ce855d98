"""The top module of the exported file: the ports of the device under the names of AMBA.

All of it is made from the signature of `Rnic` or `RnicNic`. `m_axi__awaddr` becomes `m_axi_awaddr`,
and each channel of the LLP port an AXI4-Stream. Why it is a module around the device, and not the
device with other names: docs/decisions/exported-ports.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from amaranth.hdl import Shape
from amaranth.lib.wiring import Flow, Out, Signature

INTERFACES = {
    "s_axi": ("s_axil", "Registers: AXI4-Lite slave"),
    "m_axi": ("m_axi", "Host memory: AXI4 master"),
    "t_axi": ("t_axi", "Host memory of the TCP engine: AXI4 master"),
    "rx": ("s_axis_rx", "Frames from the MAC: AXI4-Stream; tuser is 1 if a frame is bad"),
    "tx": ("m_axis_tx", "Frames to the MAC: AXI4-Stream; tuser is 0"),
}
"""The ports of the device that have the names of AMBA: names outside, and what they are."""

MASTERS = ("m_axi", "t_axi")

TIED = {"lock": (1, "1'd0"), "cache": (4, "{}_CACHE"), "prot": (3, "{}_PROT"), "qos": (4, "4'd0")}
"""What the address channels of a master have, and the device does not: widths and values."""

TIME = {
    "time_us": "Microseconds, modulo 2^32",
    "deadline": "The earliest time at which there is something to do",
    "armed": "There is one",
}

INTERRUPTS = {"irq": "Interrupt, a level", "network_irq": "Interrupt of the network, a level"}
"""Signals that stand alone, as members of the device are called, and what they are."""

LLP_CHANNELS = {
    "tx": "FPDUs to send",
    "rx_request": "requests for received bytes",
    "rx": "received bytes",
    "rx_release": "received bytes that may be forgotten",
    "event": "events",
}

STREAM_SIGNALS = {
    "valid": "tvalid",
    "ready": "tready",
    "connection": "tdest",
    "data": "tdata",
    "position": "tdata",
    "value": "tdata",
    "last": "tlast",
}
"""What the signals of an LLP channel are in AXI4-Stream; all others are in TUSER, but the bytes of
a beat, which are TKEEP."""

STREAM_ORDER = ("tvalid", "tready", "tdest", "tdata", "tkeep", "tuser", "tlast")

PARAMETERS = """\
    // AxCACHE: normal, non-cacheable, non-bufferable; a coherent port may want 4'b1111
    parameter [3:0] {name}_CACHE = 4'b0010,
    // AxPROT: data, secure, unprivileged
    parameter [2:0] {name}_PROT = 3'b000"""

CLOCK = """\
    // One clock; the reset is synchronous and active high
    (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 clk CLK",
       X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF {interfaces}, ASSOCIATED_RESET rst" *)
    input  wire        clk,
    (* X_INTERFACE_INFO = "xilinx.com:signal:reset:1.0 rst RST",
       X_INTERFACE_PARAMETER = "POLARITY ACTIVE_HIGH" *)
    input  wire        rst,
"""

INTERRUPT = """\
    // {title}
    (* X_INTERFACE_INFO = "xilinx.com:signal:interrupt:1.0 {name} INTERRUPT",
       X_INTERFACE_PARAMETER = "SENSITIVITY LEVEL_HIGH" *)
    output wire        {name}"""

Signals = dict[str, tuple[Flow, int]]
"""Names of signals of one interface of the device: direction and width."""


@dataclass
class Interface:
    """One interface of the top module: its ports, and what they are joined to inside.

    joined: what stands at each port of the device. assigned: what drives ports of the top module
    that the device does not have as they are.
    """

    name: str
    title: str
    ports: list[tuple[str, Flow, int]] = field(default_factory=list)
    joined: dict[str, str] = field(default_factory=dict)
    assigned: list[str] = field(default_factory=list)


def top_module(signature: Signature, module: str, device: str) -> str:
    """Verilog of `module` around the module `device`, an escaped name with this signature."""
    interfaces = exported_interfaces(signature)
    alone = [name for name in (*INTERRUPTS, *TIME) if name in signature.members]
    joined = {name: name for name in ("clk", "rst", *alone)}
    for interface in interfaces:
        joined |= interface.joined
    parameters = ",\n".join(
        PARAMETERS.format(name=name.upper()) for name in MASTERS if name in signature.members
    )
    interrupts = ",\n".join(
        INTERRUPT.format(name=name, title=title)
        for name, title in INTERRUPTS.items()
        if name in signature.members
    )
    return "\n".join(
        [
            f"module {module} #(\n{parameters}\n) (",
            CLOCK.format(interfaces=":".join(interface.name for interface in interfaces)),
            *(_declarations(interface) for interface in interfaces),
            *_time(signature),
            f"{interrupts}\n);",
            *(line for interface in interfaces for line in interface.assigned),
            f"    {device} device (",
            ",\n".join(f"        .{name}({value})" for name, value in joined.items()),
            "    );",
            "endmodule\n",
        ]
    )


def exported_interfaces(signature: Signature) -> list[Interface]:
    """The interfaces of the top module around a device."""
    signals: dict[str, Signals] = {}
    for (name, *rest), member in signature.members.flatten():
        if member.is_port:
            width = Shape.cast(member.shape).width
            signals.setdefault(str(name), {})["__".join(map(str, rest))] = member.flow, width
    return [
        *(_axi(inside, signals[inside]) for inside in INTERFACES if inside in signals),
        *(_streams(signals["llp"]) if "llp" in signals else ()),
    ]


def _declaration(name: str, flow: Flow, width: int) -> str:
    direction = "output" if flow is Out else "input "
    bits = f"[{width - 1}:0]" if width > 1 else ""
    return f"    {direction} wire {bits:6} {name},"


def _declarations(interface: Interface) -> str:
    lines = [f"    // {interface.title}"]
    for name, flow, width in interface.ports:
        lines.append(_declaration(f"{interface.name}_{name}", flow, width))
    return "\n".join([*lines, ""])


def _time(signature: Signature) -> Iterator[str]:
    """Declarations of the time, and of what is due."""
    for name, title in TIME.items():
        if name in signature.members:
            member = signature.members[name]
            yield f"    // {title}"
            yield f"{_declaration(name, member.flow, Shape.cast(member.shape).width)}\n"


def _axi(inside: str, signals: Signals) -> Interface:
    """A port that has the names of AMBA already."""
    interface = Interface(*INTERFACES[inside])
    for name, (flow, width) in signals.items():
        interface.ports.append((name, flow, width))
        interface.joined[f"{inside}__{name}"] = f"{interface.name}_{name}"
        if name.endswith("burst"):
            for tied, (bits, value) in TIED.items():
                port = name[:2] + tied
                interface.ports.append((port, Out, bits))
                value = value.format(interface.name.upper())
                interface.assigned.append(f"    assign {interface.name}_{port} = {value};")
    return interface


def _streams(signals: Signals) -> Iterator[Interface]:
    """The channels of the LLP port, each an AXI4-Stream."""
    for channel, title in LLP_CHANNELS.items():
        members = {
            name.removeprefix(f"{channel}_"): signal
            for name, signal in signals.items()
            if _channel(name) == channel
        }
        yield _stream(channel, title, members)


def _channel(name: str) -> str:
    return max((one for one in LLP_CHANNELS if name.startswith(f"{one}_")), key=len)


def _stream(channel: str, title: str, signals: Signals) -> Interface:
    out = signals["valid"][0] is Out
    interface = Interface(f"{'m' if out else 's'}_axis_llp_{channel}", f"LLP, {title}")
    outside = {name: STREAM_SIGNALS.get(name, "tuser") for name in signals}
    if "data" in signals and "octets" in signals:
        outside["octets"] = "tkeep"
    meanings = []
    for port in STREAM_ORDER:
        inside = {name: signals[name][1] for name in signals if outside[name] == port}
        if not inside:
            continue
        flow = signals[next(iter(inside))][0]
        if port == "tkeep":
            lanes = signals["data"][1] // 8
            interface.ports.append((port, flow, lanes))
            _join_lanes(interface, channel, lanes, inside["octets"])
        else:
            interface.ports.append((port, flow, sum(inside.values())))
            _join_fields(interface, channel, port, inside)
        if port[1:] not in inside:  # TVALID is valid; TDEST is not dest
            fields = ", ".join(reversed(inside))  # as Verilog joins them: the lowest bits are last
            meanings.append(f"{port} is {f'{{{fields}}}' if len(inside) > 1 else fields}")
    if meanings:
        interface.title += f": {', '.join(meanings)}"
    return interface


def _join_lanes(interface: Interface, channel: str, lanes: int, width: int) -> None:
    """Makes TKEEP of the number of bytes, which are from lane 0 on."""
    count = f"{channel}_octets"
    interface.joined[f"llp__{count}"] = count
    interface.assigned += [
        f"    wire [{width - 1}:0] {count};",
        f"    assign {interface.name}_tkeep = ~({{{lanes}{{1'b1}}}} << {count});",
    ]


def _join_fields(interface: Interface, channel: str, port: str, fields: dict[str, int]) -> None:
    """Gives the signals of the device their bits of a port, the first one the lowest."""
    low = 0
    for name, width in fields.items():
        bits = f"[{low + width - 1}:{low}]" if width > 1 else f"[{low}]"
        interface.joined[f"llp__{channel}_{name}"] = f"{interface.name}_{port}" + (
            bits if len(fields) > 1 else ""
        )
        low += width
