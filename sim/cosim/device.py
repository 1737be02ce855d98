"""A device inside a cocotb simulation as a transport of the driver.

The driver is ordinary blocking code: it runs in a thread that `cocotb.task.bridge` starts, and
every call here lets the simulation run until it is done (`cocotb.task.resume`). Simulated time
stands still while driver code computes, so a test is deterministic.
"""

import random
from collections import deque
from types import TracebackType
from typing import Any, Self

import cocotb
from cocotb.clock import Clock
from cocotb.task import resume
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from stagecoach.host_driver.transport.base import StreamClosed, TransportError, TransportTimeout
from stagecoach.sim.cosim.axi import AxiMemory
from stagecoach.sim.cosim.foreign import ForeignMemory, ForeignRegisters
from stagecoach.sim.cosim.host_memory import HostMemory
from stagecoach.sim.cosim.llp import LLP_LATENCY, LlpPort
from stagecoach.sim.cosim.registers import RegisterMaster

CLOCK_NS = 6.4
"""Period of 156.25 MHz."""

POLL_CYCLES = 16
CYCLES_PER_SECOND = 20_000
"""How many cycles of waiting a second of the driver's timeouts is."""


class Link:
    """One end of a stream between two devices of a simulation."""

    def __init__(self, device: "CocotbDevice", emss: int):
        self._device = device
        self._emss = emss
        self._received = bytearray()
        self._closed = False
        self._attached: int | None = None
        self.other: Link | None = None
        self.local_address = ("simulation", 0)
        self.peer_address = ("simulation", 0)

    @property
    def maximum_segment_size(self) -> int:
        """EMSS in bytes."""
        return self._emss

    def arrive(self, octets: bytes) -> None:
        """Takes bytes from the other end, for the driver or for the device."""
        if self._attached is None:
            self._received += octets
        else:
            self._device.llp.receive(self._attached, octets)

    def arrive_close(self) -> None:
        """Takes the end of the stream from the other end."""
        self._closed = True
        if self._attached is not None:
            self._device.llp.close(self._attached)

    def give(self, octets: bytes) -> None:
        """Sends bytes to the other end."""
        if self.other is not None:
            self.other.arrive(octets)

    def end(self) -> None:
        """Sends the end of the stream: the device asked for the close."""
        if self.other is not None:
            self.other.arrive_close()

    def sendall(self, octets: bytes, timeout: float | None = None) -> None:
        """Sends bytes during startup."""
        if self._closed:
            raise StreamClosed("the peer has closed the stream")
        self.give(octets)

    def receive_exactly(self, count: int, timeout: float | None = None) -> bytes:
        """The next `count` bytes during startup."""
        self._device.wait_for(
            lambda: len(self._received) >= count or self._closed, timeout, f"{count} bytes"
        )
        if len(self._received) < count:
            raise StreamClosed(f"the stream ended {count - len(self._received)} bytes early")
        octets = bytes(self._received[:count])
        del self._received[:count]
        return octets

    def wait_readable(self, timeout: float | None = None) -> None:
        """Waits for a byte during startup, and leaves it in the stream."""
        self._device.wait_for(lambda: self._received or self._closed, timeout, "a byte")
        if not self._received:
            raise StreamClosed("the peer has closed the stream")

    def attach(self, connection: int) -> None:
        """The stream belongs to the device from here on."""
        self._attached = connection
        self._device.llp.attach(connection, self.give, self._emss, self.end)
        self._device.llp.receive(connection, bytes(self._received))
        self._received.clear()
        if self._closed:
            self._device.llp.close(connection)

    def close(self) -> None:
        """Ends the stream."""
        if self._attached is not None:
            self._device.llp.detach(self._attached)
            self._attached = None
        if self.other is not None:
            other, self.other = self.other, None
            other.arrive_close()


class LinkListener:
    """Waits for the other device to open a stream."""

    def __init__(self, device: "CocotbDevice", port: int):
        self._device = device
        self.waiting: deque[Link] = deque()
        self.address = ("simulation", port)

    def accept(self, timeout: float | None = None) -> Link:
        """The next stream."""
        self._device.wait_for(lambda: bool(self.waiting), timeout, "a connection")
        return self.waiting.popleft()

    def close(self) -> None:
        """Stops listening."""
        self._device.listeners.pop(self.address[1], None)


class CocotbDevice:
    """The device at `<prefix>s_axi__...`, `<prefix>m_axi__...` and so on of a simulated design.

    Parameters
    ----------
    dut: the design. prefix: of its ports, for a design that holds several devices.
    emss: EMSS of the links in bytes.
    read_latency, write_latency: of host memory, in cycles.
    llp_latency: from a request for received bytes to their first beat, in cycles.
    late_writes: what the device writes is visible only with its write response.
    rng: if given, all ports of the device pause at random.
    foreign: serve the AXI ports with the models of cocotbext-axi, which nobody here wrote; their
        latencies are their own.

    Call `start` in the test before the driver is used, `join` to let two devices connect.
    """

    calls_from_any_thread = False  # but in those that `cocotb.task.bridge` starts

    def __init__(
        self,
        dut: Any,
        prefix: str = "",
        *,
        emss: int = 1460,
        read_latency: int = 250,
        write_latency: int = 50,
        llp_latency: int = LLP_LATENCY,
        late_writes: bool = False,
        rng: random.Random | None = None,
        foreign: bool = False,
    ):
        self._clock = dut.clk
        self.emss = emss
        self.memory = HostMemory()
        self.axi: Any  # AxiMemory or ForeignMemory
        self.registers: RegisterMaster | ForeignRegisters
        if foreign:
            self.axi = ForeignMemory(dut, f"{prefix}m_axi", dut.clk, self.memory, rng=rng)
            self.registers = ForeignRegisters(dut, f"{prefix}s_axi", dut.clk, rng=rng)
        else:
            self.axi = AxiMemory(
                dut,
                f"{prefix}m_axi",
                dut.clk,
                self.memory,
                read_latency=read_latency,
                write_latency=write_latency,
                late_writes=late_writes,
                rng=rng,
            )
            self.registers = RegisterMaster(dut, f"{prefix}s_axi", dut.clk, rng=rng)
        self.llp = LlpPort(dut, f"{prefix}llp", dut.clk, latency=llp_latency, rng=rng)
        self._irq = getattr(dut, f"{prefix}irq")
        self._prefix = prefix
        self.listeners: dict[int, LinkListener] = {}
        self.peers: list[CocotbDevice] = []
        self._links: dict[int, Link] = {}
        self.info = {"kind": "cocotb"}
        self._second = False

    def __repr__(self) -> str:
        ports = f"ports {self._prefix}*, EMSS {self.emss}"
        return f"<CocotbDevice: {ports}, {len(self._links)} streams>"

    def start(self) -> None:
        """Starts the models of the ports."""
        cocotb.start_soon(self.axi.run())
        cocotb.start_soon(self.llp.run())

    def join(self, other: "CocotbDevice") -> None:
        """Lets two devices connect to each other's listeners.

        The driver of the other one goes on a nanosecond after the clock's edge, always after that
        of this one: threads that went on at the same time would be in no order.
        """
        self.peers.append(other)
        other.peers.append(self)
        other._second = True

    def _run(self, function: Any, *arguments: Any) -> Any:
        """Lets the simulation run until a coroutine function is done."""

        async def run() -> Any:
            result = await function(*arguments)
            if self._second:
                await Timer(1, "ns")
            return result

        return resume(run)()

    # Registers

    def read_register(self, address: int) -> int:
        """The 32-bit register at a byte address."""
        value, response = self._run(self.registers.read, address)
        if response:
            raise TransportError(f"read of register 0x{address:03X}: response {response}")
        return value

    def write_register(self, address: int, value: int) -> None:
        """Writes a 32-bit register."""
        response = self._run(self.registers.write, address, value)
        if response:
            raise TransportError(f"write of register 0x{address:03X}: response {response}")

    # Memory

    def map_memory(self, buffer: Any) -> int:
        """Lets the device reach a writable buffer."""
        return self.memory.map(buffer)

    def unmap_memory(self, address: int) -> None:
        """Takes a buffer back."""
        self.memory.unmap(address)

    # Streams

    def listen(self, host: str, port: int) -> LinkListener:
        """Waits for the other device; `port` 0 takes any free one."""
        if port == 0:
            port = max(self.listeners, default=0) + 1
        self.listeners[port] = listener = LinkListener(self, port)
        return listener

    def connect(self, host: str, port: int, timeout: float | None = None) -> Link:
        """Opens a stream to a joined device that listens."""
        self.wait_for(
            lambda: any(port in peer.listeners for peer in self.peers), timeout, f"port {port}"
        )
        peer = next(peer for peer in self.peers if port in peer.listeners)
        mine, its = Link(self, self.emss), Link(peer, peer.emss)
        mine.other, its.other = its, mine
        peer.listeners[port].waiting.append(its)
        return mine

    def attach(self, connection: int, stream: Any) -> None:
        """Hands a stream to the device."""
        self._links[connection] = stream
        stream.attach(connection)

    def detach(self, connection: int, timeout: float = 2.0) -> None:
        """Ends the stream of a connection. Raises `TransportError` if it has none."""
        link = self._links.pop(connection, None)
        if link is None:
            raise TransportError(f"connection {connection} has no stream")
        link.close()

    # Waiting

    def wait_for(self, done: Any, timeout: float | None, what: str) -> None:
        """Lets the simulation run until `done()`; `TransportTimeout` names `what`."""
        left = None if timeout is None else int(timeout * CYCLES_PER_SECOND)
        while not done():
            if left is not None and left <= 0:
                raise TransportTimeout(f"{what}: nothing within {timeout} s")
            self.run_cycles(POLL_CYCLES)
            if left is not None:
                left -= POLL_CYCLES

    def run_cycles(self, cycles: int) -> None:
        """Lets the simulation run."""

        async def run() -> None:
            await ClockCycles(self._clock, cycles)

        self._run(run)

    def wait_interrupt(self, timeout: float | None = None) -> bool:
        """Lets the simulation run until the interrupt, at most the time."""
        left = None if timeout is None else max(POLL_CYCLES, int(timeout * CYCLES_PER_SECOND))
        while left is None or left > 0:
            if self._irq.value == 1:
                return True
            self.run_cycles(POLL_CYCLES)
            if left is not None:
                left -= POLL_CYCLES
        return False

    def close(self) -> None:
        """Ends all streams."""
        while self._links:
            self._links.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def start_clock(dut: Any) -> None:
    """Starts the clock and resets the design."""
    Clock(dut.clk, CLOCK_NS, "ns").start()
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


async def start_pair(dut: Any, **options: Any) -> tuple[CocotbDevice, CocotbDevice]:
    """Starts clock and models of a `RnicPair`; the two devices can connect to each other.

    `options` are those of `CocotbDevice`.
    """
    a, b = CocotbDevice(dut, "a_", **options), CocotbDevice(dut, "b_", **options)
    await start_clock(dut)
    a.start()
    b.start()
    a.join(b)
    return a, b
