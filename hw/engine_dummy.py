"""Something of the size of a TCP engine, to see what clock a device keeps beside one.

`EngineDummy` does nothing of use. It has the cells that are planned for the engine (`TARGETS`) and
the shape that it is going to have: five pipelines of a 64-bit word and of what a table knows of its
connection, `LEVELS` gates between registers, tables of 64 x 1,500 bits, and the ports by which the
engine is joined to the LLP port, to registers, to buffers in memory and to a MAC.

Gates are `LUT4` cells, so that synthesis leaves each as it is: what the dummy takes does not depend
on what it stands beside.
"""

import functools
import random

from amaranth.hdl import Array, Cat, Const, Instance, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.dma.ports import AxiSignature
from stagecoach.gateware.memories import NO_COLLISION
from stagecoach.gateware.mpa.ports import LlpSignature
from stagecoach.gateware.rnic import Rnic

TARGETS = {"lut4": 20_000, "dp16kd": 50, "ff": 18_000}
TOLERANCE = 0.03

PIPELINES = 5
STAGES = 9
LEVELS = 4
WORD = 64
CONNECTIONS = 64
STATE_BITS = 1500 // PIPELINES
"""What the table of a pipeline knows of a connection."""

CARRIED = 254
"""Bits of it that go from stage to stage; the others are used up in the first one."""
CHANGED = 45
"""Bits of it that a stage computes; it passes on all others."""

BUFFER_DEPTH = 512
REGISTERS = 4
REGISTER_BITS = 32

# How far from each other the bits are that a gate looks at.
_REACH = 12
_BLOCK_RAM = {"ram_style": "block", **NO_COLLISION}


def excess_of_dummy(found: dict[str, int]) -> list[str]:
    """What of the cells that were counted is not within `TOLERANCE` of `TARGETS`, in words."""
    return [
        f"the engine dummy has {found[name]:,} {name.upper()}; allowed: {target:,} within "
        f"{TOLERANCE:.0%}"
        for name, target in TARGETS.items()
        if abs(found[name] - target) > TOLERANCE * target
    ]


class Pipeline(wiring.Component):
    """A word goes through `STAGES` registers, with what the table knows of its connection.

    One word a cycle; it is there `STAGES` + 2 cycles later. Nothing holds it up: before an engine
    lets a word in, it sees to it that there is room behind.

    Parameters
    ----------
    seed: of the gates, and of what they are connected to.

    Members
    -------
    valid, connection, word: what goes in. setting: is looked at in all stages.
    done, result: the word at the end. What is known of its connection is then written back.
    """

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        super().__init__(
            {
                "valid": In(1),
                "connection": In(range(CONNECTIONS)),
                "word": In(WORD),
                "setting": In(REGISTER_BITS),
                "done": Out(1),
                "result": Out(WORD),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.table = table = Memory(
            shape=STATE_BITS, depth=CONNECTIONS, init=[], attrs=_BLOCK_RAM
        )
        read, write = table.read_port(), table.write_port()
        m.d.comb += read.addr.eq(self.connection)
        # The answer of a block RAM takes most of a cycle.
        known = Signal(STATE_BITS, reset_less=True)
        m.d.sync += known.eq(read.data)
        word = self._later(m, "word", self.word, 2)
        going = self._later(m, "waiting", self.valid, 2)
        bits: Value = Cat(word, known)
        for stage in range(STAGES):
            made = self._stage(m, stage, bits)
            kept = bits[WORD + CHANGED : WORD + CARRIED]
            register = Signal(WORD + CARRIED, name=f"bits{stage}", reset_less=True)
            with m.If(going):
                # Each bit of the state has its turn at the gates.
                m.d.sync += register.eq(Cat(made[:WORD], kept, made[WORD:]))
            bits, going = register, self._later(m, f"valid{stage}", going, 1)
        m.d.comb += [
            self.done.eq(going),
            self.result.eq(bits[:WORD]),
            write.en.eq(going),
            write.addr.eq(self._later(m, "connection", self.connection, STAGES + 2)),
            write.data.eq(Cat(bits[WORD:], bits[: STATE_BITS - CARRIED])),
        ]
        return m

    @staticmethod
    def _later(m: Module, name: str, value: Value, cycles: int) -> Value:
        for cycle in range(cycles):
            register = Signal(len(value), name=f"{name}_{cycle}", reset_less=len(value) > 1)
            m.d.sync += register.eq(value)
            value = register
        return value

    def _stage(self, m: Module, stage: int, bits: Value) -> Value:
        """`LEVELS` of gates. What is not carried on is looked at by the first of them."""
        rest = list(bits[WORD + CARRIED :])
        for level in range(LEVELS):
            made = Signal(WORD + CHANGED, name=f"made{stage}_{level}")
            for place, output in enumerate(made):
                near = [bits[(place + far) % len(bits)] for far in range(1, _REACH)]
                inputs = [bits[place], *self._random.sample(near, 3)]
                if not level and place < len(rest):
                    inputs[1] = rest[place]
                if not place:
                    inputs[2] = self.setting[(LEVELS * stage + level) % REGISTER_BITS]
                pins = {f"i_{pin}": each for pin, each in zip("ABCD", inputs, strict=True)}
                m.submodules[f"gate{stage}_{level}_{place}"] = Instance(
                    "LUT4", p_INIT=Const(self._function(), 16), **pins, o_Z=output
                )
            bits = made
        return bits

    def _function(self) -> int:
        """A table of a gate in which no input is without effect."""
        while True:
            table = self._random.getrandbits(16)
            if all(
                any((table >> at ^ table >> (at ^ 1 << pin)) & 1 for at in range(16))
                for pin in range(4)
            ):
                return table


class EngineDummy(wiring.Component):
    """The pipelines, buffers between them, and the ports, with a register at each.

    No port waits for another one, and nothing is promised about what comes out.

    Parameters
    ----------
    config: of the device at the LLP port.

    Members
    -------
    llp: the other side of a device's LLP port. buffers: rings in memory, an AXI4 master.
    register, write, value: of a register that is to be written. answer: what is in `register`.
    wire_in, wire_out: words of frames, from and to a MAC.
    """

    def __init__(self, config: RnicConfig):
        super().__init__(
            {
                "llp": In(LlpSignature(config)),
                "buffers": Out(AxiSignature()),
                "register": In(range(2 * REGISTERS)),
                "write": In(1),
                "value": In(REGISTER_BITS),
                "answer": Out(REGISTER_BITS),
                "wire_in": In(stream.Signature(WORD)),
                "wire_out": Out(stream.Signature(WORD)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        pipelines = [Pipeline(number) for number in range(PIPELINES)]
        for number, each in enumerate(pipelines):
            m.submodules[f"pipeline{number}"] = each
        parse, receive, request, send, build = pipelines
        llp, buffers = self.llp, self.buffers
        first, second = self._registers(m, pipelines)[:2]
        frames = self._buffer(m, "frames", parse, WORD, buffers.awready)
        segments = self._buffer(m, "segments", send, WORD, buffers.wready)
        bounds = self._buffer(m, "bounds", build, REGISTER_BITS, buffers.arready)

        # What goes into each pipeline: valid, connection, word, setting.
        self._feed(m, parse, self.wire_in.valid, self.wire_in.payload, self.wire_in.payload, first)
        self._feed(m, receive, buffers.bvalid, frames, frames, buffers.rdata[REGISTER_BITS:])
        asked = Cat(llp.rx_request_position, llp.rx_request_octets, llp.rx_release_connection)
        answered = Cat(llp.rx_release_valid, llp.rx_ready, llp.event_ready)
        self._feed(
            *(m, request, llp.rx_request_valid, llp.rx_request_connection),
            *(Cat(asked, answered), llp.rx_release_position),
        )
        told = Cat(llp.tx_octets, llp.tx_first, llp.tx_last, llp.tx_close)
        self._feed(m, send, llp.tx_valid, llp.tx_connection, llp.tx_data, Cat(told, second))
        self._feed(m, build, buffers.rvalid, bounds, segments, buffers.rdata[:REGISTER_BITS])

        # And what comes out of it.
        self._drive(m, parse, buffers.awvalid, buffers.awaddr[3:], buffers.awlen)
        self._drive(m, receive, llp.rx_valid, llp.rx_data, self.wire_in.ready)
        self._drive(m, receive, llp.event_valid, llp.event_connection, llp.event_value)
        self._drive(m, send, llp.tx_ready, buffers.wdata, llp.event_kind)
        self._drive(m, send, buffers.wvalid, buffers.wlast, buffers.bready)
        self._drive(m, request, llp.rx_request_ready, buffers.araddr[3:], buffers.arlen)
        self._drive(m, request, buffers.arvalid, llp.rx_release_ready, buffers.rready)
        self._drive(m, build, self.wire_out.valid, self.wire_out.payload)
        return m

    def _registers(self, m: Module, pipelines: list[Pipeline]) -> list[Signal]:
        """Those that are written, and with them some that show what a pipeline has made."""
        register, write, value = (
            Signal.like(each) for each in (self.register, self.write, self.value)
        )
        m.d.sync += [
            *(register.eq(self.register), write.eq(self.write), value.eq(self.value)),
        ]
        found = [Signal(REGISTER_BITS, name=f"register{number}") for number in range(REGISTERS)]
        for number, each in enumerate(found):
            with m.If(write & (register == number)):
                m.d.sync += each.eq(value)
        made = [each.result[:REGISTER_BITS] for each in pipelines[:REGISTERS]]
        answer = Signal(REGISTER_BITS, reset_less=True)
        m.d.sync += answer.eq(Array([*found, *made])[register])
        m.d.comb += self.answer.eq(answer)
        return found

    def _buffer(self, m: Module, name: str, source: Pipeline, width: int, take: Value) -> Value:
        """A memory that a pipeline fills; the next of its words comes after `take`."""
        m.submodules[name] = memory = Memory(
            shape=width, depth=BUFFER_DEPTH, init=[], attrs=_BLOCK_RAM
        )
        read, write = memory.read_port(), memory.write_port()
        word, taken = (
            Signal(width, reset_less=True, name=f"{name}_word"),
            Signal(name=f"{name}_take"),
        )
        m.d.comb += [write.en.eq(source.done), write.data.eq(source.result)]
        m.d.sync += [word.eq(read.data), taken.eq(take), write.addr.eq(write.addr + source.done)]
        m.d.sync += read.addr.eq(read.addr + taken)
        return word

    @staticmethod
    def _feed(
        m: Module, pipeline: Pipeline, valid: Value, connection: Value, word: Value, setting: Value
    ) -> None:
        m.d.sync += [
            *(pipeline.valid.eq(valid), pipeline.connection.eq(connection)),
            *(pipeline.word.eq(word), pipeline.setting.eq(setting)),
        ]

    @staticmethod
    def _drive(m: Module, pipeline: Pipeline, valid: Value, *ports: Value) -> None:
        """Registers in front of ports, whose bits are those of the result, again and again."""
        bits = Cat(ports)
        register = Signal(1 + len(bits), reset_less=True)
        results = [pipeline.result[place % WORD] for place in range(len(bits))]
        m.d.sync += register.eq(Cat(pipeline.done, *results))
        m.d.comb += Cat(valid, bits).eq(register)


class RnicBesideDummy(wiring.Component):
    """A device whose LLP port leads to an `EngineDummy`.

    Parameters
    ----------
    config: of the device.

    Members
    -------
    Those of `Rnic` and of `EngineDummy` but for the LLP port.
    """

    def __init__(self, config: RnicConfig):
        self._rnic, self._dummy = Rnic(config), EngineDummy(config)
        members = self._rnic.signature.members, self._dummy.signature.members
        super().__init__(
            {name: each for found in members for name, each in found.items() if name != "llp"}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rnic, m.submodules.dummy = self._rnic, self._dummy
        wiring.connect(m, self._rnic.llp, self._dummy.llp)
        for part in (self._rnic, self._dummy):
            for path, member, inner in part.signature.flatten(part):
                if path[0] != "llp":
                    outer = functools.reduce(getattr, map(str, path), self)
                    m.d.comb += inner.eq(outer) if member.flow is In else outer.eq(inner)
        return m
