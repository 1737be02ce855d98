"""Commands reach the blocks in order, with their arguments, and only if these are valid."""

from random import Random
from typing import Any

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.tcp.commands import NetworkCommands, NetworkOpcode, staging_registers
from stagecoach.gateware.tcp.layouts import (
    ReceiveOperation,
    TransmitOperation,
    attachment_layout,
    receive_command,
    received_segment,
    release_layout,
    transmit_command,
)
from stagecoach.gateware.tcp.lookup import lookup_command, lookup_result
from stagecoach.host_driver.network_registers import NetworkOpcode as DriverOpcode
from stagecoach.hw.interface.network_entries import HeaderRow
from stagecoach.sim.cosim.streams import (
    StreamMonitor,
    StreamSink,
    StreamSource,
    pack,
    seeded_random,
    start_clock_and_reset,
)
from tests.support.runner import parameter, run_cocotb

SIZES = {"2": (2, 576), "64": (64, 1500), "256": (256, 9000)}
"""Connections and MTU."""

HEADERS = 40
MOST_OCTETS = (1 << 14) - 1
OP = NetworkOpcode


@pytest.mark.parametrize("pattern", ["always", "random"])
@pytest.mark.parametrize("connections", SIZES)
def test_network_commands(connections: str, pattern: str) -> None:
    config, mtu = RnicConfig(qps=SIZES[connections][0]), SIZES[connections][1]
    parameters = {"CONNECTIONS": connections, "PATTERN": pattern}
    run_cocotb(NetworkCommands(config, mtu), __name__, parameters=parameters)


def test_driver_and_gateware_number_commands_alike() -> None:
    opcodes = {opcode.name: opcode.value for opcode in NetworkOpcode if opcode is not OP.NONE}
    assert opcodes == {opcode.name: opcode.value for opcode in DriverOpcode}


class Bench:
    """The block, with neighbours that log what they hear, a lookup, a settler and a fence.

    never: neighbours that take nothing, or do not answer.
    """

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.connections, self.mtu = SIZES[parameter("CONNECTIONS")]
        self.bits = (self.connections - 1).bit_length()
        pattern = parameter("PATTERN")
        self.rng = seeded_random(pattern, parameter("CONNECTIONS"))
        self.log: list[tuple[str, Any]] = []
        self.found = 1
        self.edge = 0  # of the window of the last connection that began
        self.never: set[str] = set()
        self.opcode = StreamSource(dut, "opcode", None, rng=self.rng, pattern="always")
        self.done = StreamSource(
            dut, "lookup_done", lookup_result(self.bits), rng=self.rng, pattern="always"
        )
        self.sinks = {}
        for name, layout in self.layouts().items():
            sink = StreamSink(dut, name, layout, rng=self.rng, pattern=pattern)
            StreamMonitor(dut, name, layout)
            self.sinks[name] = sink
            cocotb.start_soon(self._listen(name, sink))
        for name in staging_registers():
            getattr(dut, name).value = 0
        for name in ("begun", "begun_edge", "info_done", "fence_busy"):
            getattr(dut, name).value = 0
        cocotb.start_soon(self._header())
        cocotb.start_soon(self._fence())

    def layouts(self) -> dict[str, Any]:
        return {
            "receive_command": receive_command(self.bits),
            "transmit_command": transmit_command(self.bits),
            "lookup": lookup_command(self.bits),
            "placed": received_segment(self.bits),
            "release": release_layout(self.bits),
            "attachment": attachment_layout(self.bits),
        }

    async def _listen(self, name: str, sink: StreamSink) -> None:
        while True:
            item = await sink.get()
            self.log.append((name, item))
            operation = item.get("operation")
            if name == "lookup" and "lookup_done" not in self.never:
                await self._later()
                self.log.append(("lookup done", None))
                self.done.put({"found": self.found, "connection": item["connection"]})
            if name == "receive_command" and operation == ReceiveOperation.BEGIN.value:
                edge = self.rng.getrandbits(32)
                await self._pulse("begun", begun_edge=edge)
                self.edge = edge
            if name == "transmit_command" and operation == TransmitOperation.INFO.value:
                await self._pulse("info_done")

    async def _later(self) -> None:
        await ClockCycles(self.dut.clk, self.rng.randrange(1, 20))

    async def _pulse(self, name: str, **values: int) -> None:
        """One, some cycles later; what is said with it counts in that cycle alone."""
        if name in self.never:
            return
        await self._later()
        self.log.append((name, None))
        for port, value in values.items():
            getattr(self.dut, port).value = value
        getattr(self.dut, name).value = 1
        await RisingEdge(self.dut.clk)
        getattr(self.dut, name).value = 0
        for port in values:
            getattr(self.dut, port).value = self.rng.getrandbits(32)

    async def _header(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if dut.header_write.value:
                names = ("connection", "row", "word")
                values = {name: int(getattr(dut, f"header_{name}").value) for name in names}
                self.log.append(("header", values))

    async def _fence(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if dut.fence_start.value:
                dut.fence_busy.value = 1
                self.log.append(("fence begun", None))
                await self._later()
                while "fence" in self.never:
                    await RisingEdge(dut.clk)
                self.log.append(("fence ended", None))
                dut.fence_busy.value = 0

    def stage(self, name: str, **fields: int) -> None:
        """Writes a staging register."""
        getattr(self.dut, name).value = pack(staging_registers()[name], fields)

    async def run(self, opcode: int) -> tuple[list[tuple[str, Any]], bool]:
        """Runs a command; returns what happened, and whether it was invalid."""
        self.log.clear()
        self.opcode.put(opcode)
        while self.opcode.pending:
            await RisingEdge(self.dut.clk)
        await RisingEdge(self.dut.clk)
        while self.dut.busy.value:
            await RisingEdge(self.dut.clk)
        ended = len(self.log)
        await ClockCycles(self.dut.clk, 3)
        assert len(self.log) == ended  # nothing is left when it ends
        return list(self.log), bool(self.dut.invalid.value)


def names(log: list[tuple[str, Any]]) -> list[str]:
    """Who heard of a command, in order."""
    return [name for name, _ in log]


FENCE = ["fence begun", "fence ended"]
LOOKUP = ["lookup", "lookup done"]
ORDERS = {
    OP.HEADER: ["header"],
    OP.ESTABLISH: ["receive_command", "begun", "transmit_command", *LOOKUP],
    OP.SEGMENT: ["placed"],
    OP.SEND: ["transmit_command"],
    OP.RELEASE: ["release"],
    OP.ATTACH: ["receive_command", "attachment", "transmit_command"],
    OP.DETACH: ["attachment", "transmit_command", *FENCE],
    OP.CLOSE: ["transmit_command"],
    OP.ABORT: ["transmit_command"],
    OP.RESIZE: ["transmit_command"],
    OP.DISCARD: ["receive_command"],
    OP.INFO: ["transmit_command", "info_done"],
    OP.FORGET: [*LOOKUP, *FENCE],
}
RECEIVES = {
    OP.ESTABLISH: ReceiveOperation.BEGIN,
    OP.ATTACH: ReceiveOperation.ATTACH,
    OP.DISCARD: ReceiveOperation.DISCARD,
}
TRANSMITS = {
    OP.ESTABLISH: TransmitOperation.BEGIN,
    OP.SEND: TransmitOperation.SEND,
    OP.ATTACH: TransmitOperation.ATTACH,
    OP.DETACH: TransmitOperation.DETACH,
    OP.CLOSE: TransmitOperation.FINISH,
    OP.ABORT: TransmitOperation.ABORT,
    OP.RESIZE: TransmitOperation.RESIZE,
    OP.INFO: TransmitOperation.INFO,
}


async def begin(dut: Any) -> Bench:
    bench = Bench(dut)
    await start_clock_and_reset(dut)
    return bench


def random_arguments(rng: Random, connections: int, mtu: int) -> dict[str, int]:
    """Valid ones, of which each that has bounds is often at one of them."""
    words = (
        *("local", "remote", "send_next", "send_window", "window_from", "receive_next"),
        *("receive_edge", "cwnd", "srtt8", "rttvar4", "rto", "number", "acknowledgment"),
        *("header_low", "header_high"),
    )
    return {name: rng.getrandbits(32) for name in words} | {
        "connection": rng.choice([0, connections - 1, rng.randrange(connections)]),
        "lane": rng.choice([0, connections - 1, rng.randrange(connections)]),
        "local_port": rng.getrandbits(16),
        "remote_port": rng.getrandbits(16),
        "send_shift": rng.choice([0, 14, rng.randrange(15)]),
        "receive_shift": rng.choice([0, 14, rng.randrange(15)]),
        "sampled": rng.getrandbits(1),
        "emss": rng.choice([1, mtu - HEADERS, rng.randrange(1, mtu - HEADERS)]),
        "octets": rng.choice([1, MOST_OCTETS, rng.randrange(1, MOST_OCTETS)]),
        "rx_ring": rng.getrandbits(45) << 3,
        "tx_ring": rng.getrandbits(45) << 3,
        "rx": rng.choice([0, 13, rng.randrange(14)]),
        "tx": rng.choice([0, 13, rng.randrange(14)]),
        "row": rng.choice(list(HeaderRow)),
        "window": rng.getrandbits(16),
        "control": rng.getrandbits(8),
    }


def stage(bench: Bench, given: dict[str, int]) -> None:
    bench.stage("tcp_connection", connection=given["connection"], lane=given["lane"])
    for name in (
        *("local", "remote", "send_next", "send_window", "window_from", "receive_next"),
        *("receive_edge", "cwnd", "srtt8", "rttvar4", "rto", "number", "acknowledgment"),
        *("header_low", "header_high"),
    ):
        bench.stage(f"tcp_{name}", value=given[name])
    bench.stage("tcp_ports", local=given["local_port"], remote=given["remote_port"])
    options = ("send_shift", "receive_shift", "sampled")
    bench.stage("tcp_options", **{name: given[name] for name in options})
    bench.stage("tcp_segment_size", value=given["emss"])
    bench.stage("tcp_octets", value=given["octets"])
    for ring in ("rx", "tx"):
        bench.stage(f"tcp_{ring}_ring_low", value=given[f"{ring}_ring"] & 0xFFFFFFFF)
        bench.stage(f"tcp_{ring}_ring_high", value=given[f"{ring}_ring"] >> 32)
    bench.stage("tcp_rings", rx=given["rx"], tx=given["tx"])
    bench.stage("tcp_header_row", row=given["row"])
    bench.stage("tcp_flags", window=given["window"], control=given["control"])


def expected(opcode: NetworkOpcode, given: dict[str, int], edge: int) -> dict[str, dict[str, Any]]:
    """What each of the listeners hears of a command."""
    connection = given["connection"]
    rto = {
        "sampled": given["sampled"],
        "srtt8": given["srtt8"],
        "rttvar4": given["rttvar4"],
        "timeout": given["rto"],
    }
    key = {name: given[name] for name in ("local", "remote", "local_port", "remote_port")}
    found: dict[str, dict[str, Any]] = {
        "header": {
            "connection": connection,
            "row": given["row"],
            "word": given["header_high"] << 32 | given["header_low"],
        },
        "lookup": {"delete": opcode is OP.FORGET, "connection": connection, "key": key},
        "release": {"connection": connection, "relative": 1, "value": given["octets"]},
        "attachment": {
            "lane": given["lane"],
            "connection": connection,
            "attached": opcode is OP.ATTACH,
            "base": given["receive_next"],
            "ring": given["rx_ring"],
            "size": given["rx"],
        },
        "placed": {
            "found": 1,
            "placed": 1,
            "connection": connection,
            "segment": {
                "raw": 0,
                "octets": 0,
                "header": 0,
                "payload": given["octets"],
                "key": dict.fromkeys(key, 0),
                "sequence": given["number"],
                "acknowledgment": given["acknowledgment"],
                "flags": given["control"],
                "window": given["window"],
                "congestion": 0,
            },
        },
    }
    if opcode in RECEIVES:
        found["receive_command"] = {
            "operation": RECEIVES[opcode].value,
            "connection": connection,
            "next": given["receive_next"],
            "edge": given["receive_edge"],
            "ring": given["rx_ring"],
            "size": given["rx"],
            "shift": given["receive_shift"],
        }
    if opcode in TRANSMITS:
        found["transmit_command"] = {
            "operation": TRANSMITS[opcode].value,
            "connection": connection,
            "number": given["send_next"],
            "window": given["send_window"],
            "window_from": given["window_from"],
            "edge": edge,
            "announced": given["receive_edge"],
            "cwnd": given["cwnd"],
            "rto": rto,
            "ring": given["tx_ring"],
            "size": given["tx"],
            "shift": given["send_shift"],
            "emss": given["emss"],
            "octets": given["octets"],
        }
    return found


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_each_command_reaches_its_blocks_in_order_with_its_arguments(dut: Any) -> None:
    bench = await begin(dut)
    assert set(ORDERS) == set(OP) - {OP.NONE}
    for _ in range(5):
        for opcode, order in ORDERS.items():
            given = random_arguments(bench.rng, bench.connections, bench.mtu)
            stage(bench, given)
            log, invalid = await bench.run(opcode.value)
            assert not invalid, opcode
            assert names(log) == order, opcode
            said = expected(opcode, given, bench.edge)
            for name, item in log:
                if item is not None:
                    assert item == said[name], (opcode, name)
            if opcode is OP.INFO:
                assert dut.info_read.value == given["connection"]


def too_large(bench: Bench) -> dict[tuple[str, str], list[int]]:
    """Wrong values of arguments: the smallest and the largest ones."""
    connections, most = bench.connections, bench.mtu - HEADERS
    rows = sorted(set(range(8)) - set(HeaderRow))
    wrong = [connections, 255] if connections < 256 else []
    return {
        ("tcp_connection", "connection"): wrong,
        ("tcp_connection", "lane"): wrong,
        ("tcp_segment_size", "value"): [0, most + 1, MOST_OCTETS],
        ("tcp_octets", "value"): [0],
        ("tcp_rings", "rx"): [14, 15],
        ("tcp_rings", "tx"): [14, 15],
        ("tcp_rx_ring_low", "value"): [1, 2, 4, 0xFFFFFFFF],
        ("tcp_tx_ring_low", "value"): [1, 2, 4, 0xFFFFFFFF],
        ("tcp_options", "send_shift"): [15],
        ("tcp_options", "receive_shift"): [15],
        ("tcp_header_row", "row"): rows,
    }


LOOKS_AT = {
    "connection": set(ORDERS),
    "lane": {OP.ATTACH, OP.DETACH},
    "tcp_segment_size": {OP.ESTABLISH, OP.RESIZE},
    "tcp_octets": {OP.SEND, OP.RELEASE},
    "rx": {OP.ESTABLISH, OP.ATTACH},
    "tx": {OP.ESTABLISH},
    "tcp_rx_ring_low": {OP.ESTABLISH, OP.ATTACH},
    "tcp_tx_ring_low": {OP.ESTABLISH},
    "tcp_options": {OP.ESTABLISH},
    "tcp_header_row": {OP.HEADER},
}
"""Which commands refuse a wrong value of a register, or of a field."""


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def check_invalid_arguments_do_nothing_where_they_count_and_else_nothing_is_lost(
    dut: Any,
) -> None:
    bench = await begin(dut)
    for (register, field), values in too_large(bench).items():
        looks = LOOKS_AT.get(field) or LOOKS_AT[register]
        for value in values:
            given = random_arguments(bench.rng, bench.connections, bench.mtu)
            stage(bench, given)
            # The other field of the register stays valid
            fields = {"tcp_connection": ("connection", "lane"), "tcp_rings": ("rx", "tx")}
            others = {one: given[one] for one in fields.get(register, ()) if one != field}
            bench.stage(register, **{field: value}, **others)
            for opcode, order in ORDERS.items():
                log, invalid = await bench.run(opcode.value)
                where = (register, field, value, opcode)
                assert invalid == (opcode in looks), where
                assert names(log) == ([] if invalid else order), where


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_unknown_opcodes_are_invalid_and_the_next_one_is_judged_anew(dut: Any) -> None:
    bench = await begin(dut)
    stage(bench, random_arguments(bench.rng, bench.connections, bench.mtu))
    for unknown in (0, len(ORDERS) + 1, 0x82, 0xFF):
        assert await bench.run(unknown) == ([], True), unknown
        log, invalid = await bench.run(OP.CLOSE.value)
        assert names(log) == ["transmit_command"] and not invalid


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_a_hash_without_a_slot_refuses_a_connection_and_forgets_one_without_error(
    dut: Any,
) -> None:
    bench = await begin(dut)
    stage(bench, random_arguments(bench.rng, bench.connections, bench.mtu))
    bench.found = 0
    log, invalid = await bench.run(OP.ESTABLISH.value)
    assert names(log) == ORDERS[OP.ESTABLISH] and invalid
    log, invalid = await bench.run(OP.FORGET.value)
    assert names(log) == ORDERS[OP.FORGET] and not invalid
    bench.found = 1
    log, invalid = await bench.run(OP.ESTABLISH.value)
    assert names(log) == ORDERS[OP.ESTABLISH] and not invalid


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_whoever_does_not_answer_holds_up_commands_for_as_long(dut: Any) -> None:
    """Each neighbour in turn: the command goes on when that answers at last, and once only."""
    bench = await begin(dut)
    stage(bench, random_arguments(bench.rng, bench.connections, bench.mtu))
    for opcode, order in ORDERS.items():
        for index, name in enumerate(order):
            if name not in bench.sinks:
                continue
            bench.sinks[name].paused = True
            running = cocotb.start_soon(bench.run(opcode.value))
            await ClockCycles(dut.clk, 100)
            assert not running.done() and dut.busy.value
            assert names(bench.log) == order[:index], (opcode, name)
            assert not dut.opcode__ready.value
            bench.sinks[name].paused = False
            log, invalid = await running
            assert names(log) == order and not invalid, (opcode, name)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def check_answers_that_never_come_hold_up_commands_only(dut: Any) -> None:
    bench = await begin(dut)
    for missing, opcode in (
        ("begun", OP.ESTABLISH),
        ("lookup_done", OP.FORGET),
        ("info_done", OP.INFO),
        ("fence", OP.DETACH),
    ):
        dut.rst.value = 1
        await ClockCycles(dut.clk, 2)
        dut.rst.value = 0
        bench.never = {missing}
        stage(bench, random_arguments(bench.rng, bench.connections, bench.mtu))
        bench.log.clear()
        bench.opcode.put(opcode.value)
        await ClockCycles(dut.clk, 300)
        assert dut.busy.value and not dut.opcode__ready.value, missing
        offered = [name for name in bench.sinks if getattr(dut, f"{name}__valid").value]
        assert not offered, missing
        bench.never = set()
        if missing == "fence":
            await ClockCycles(dut.clk, 5)
            assert not dut.busy.value


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_an_answer_may_come_before_its_command_is_taken(dut: Any) -> None:
    bench = await begin(dut)
    stage(bench, random_arguments(bench.rng, bench.connections, bench.mtu))
    for pulse, opcode, name in (
        ("begun", OP.ESTABLISH, "receive_command"),
        ("info_done", OP.INFO, "transmit_command"),
    ):
        for delay in range(4):
            bench.never, bench.sinks[name].paused = {pulse}, True
            running = cocotb.start_soon(bench.run(opcode.value))
            while not getattr(dut, f"{name}__valid").value:
                await RisingEdge(dut.clk)
            await ClockCycles(dut.clk, delay)
            getattr(dut, pulse).value = 1
            await RisingEdge(dut.clk)
            getattr(dut, pulse).value = 0
            bench.sinks[name].paused = False
            log, invalid = await running
            assert names(log) == [one for one in ORDERS[opcode] if one != pulse] and not invalid


@cocotb.test(timeout_time=500, timeout_unit="us")
async def check_one_command_after_the_other(dut: Any) -> None:
    bench = await begin(dut)
    stage(bench, random_arguments(bench.rng, bench.connections, bench.mtu))
    for _ in range(5):
        bench.opcode.put(OP.FORGET.value)
        bench.opcode.put(OP.ESTABLISH.value)
    while bench.opcode.pending or dut.busy.value:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 3)
    # No number is given anew before the fence of its last connection.
    assert names(bench.log) == [*ORDERS[OP.FORGET], *ORDERS[OP.ESTABLISH]] * 5


@cocotb.test(timeout_time=100, timeout_unit="us", skip=parameter("PATTERN", "") != "always")
async def check_a_command_takes_two_cycles_and_one_for_each_neighbour(dut: Any) -> None:
    bench = await begin(dut)
    stage(bench, random_arguments(bench.rng, bench.connections, bench.mtu))
    for opcode, order in ORDERS.items():
        if {"begun", "lookup", "info_done", *FENCE} & set(order):
            continue
        await ClockCycles(dut.clk, 5)
        bench.opcode.put(opcode.value)
        while not (dut.opcode__valid.value and dut.opcode__ready.value):
            await RisingEdge(dut.clk)
        cycles = 1  # that in which it was taken
        while True:
            await RisingEdge(dut.clk)
            if not dut.busy.value:
                break
            cycles += 1
        assert cycles == 2 + len(order), opcode
