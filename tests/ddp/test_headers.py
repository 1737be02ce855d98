"""The header layouts of DDP and RDMAP have every field where the reference model puts it."""

import random
from typing import Any

import pytest
from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import data
from amaranth.sim import Simulator

from stagecoach.gateware.ddp import headers as ddp
from stagecoach.gateware.rdmap import headers as rdmap
from stagecoach.hw.interface.wire import RDMAP_VERSION
from stagecoach.sim.cosim.streams import seeded_random
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.rdmap import Opcode, ReadRequest, control_octet

WIRE_NUMBER = data.ArrayLayout


def fields_of(view: data.View) -> dict[str, Any]:
    """Every field of a header as a number, wire fields converted."""
    found: dict[str, Any] = {}
    for name, field in view.shape():
        part = view[name]
        if isinstance(field.shape, WIRE_NUMBER):
            found[name] = ddp.from_wire(part)
        elif isinstance(part, data.View):
            found |= fields_of(part)
        else:
            found[name] = Value.cast(part)
    return found


def decode(layout: data.Layout, octets: bytes) -> dict[str, int]:
    """Lay the layout over octets in a simulation."""
    vector = Signal(layout)
    fields = fields_of(vector)
    outputs = {name: Signal(len(value)) for name, value in fields.items()}
    m = Module()
    m.d.comb += [outputs[name].eq(value) for name, value in fields.items()]
    result: dict[str, int] = {}

    async def bench(ctx: Any) -> None:
        ctx.set(vector.as_value(), int.from_bytes(octets[: layout.size // 8], "little"))
        result.update({name: ctx.get(signal) for name, signal in outputs.items()})

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    return result


def encode(layout: data.Layout, values: dict[str, int]) -> bytes:
    """Write fields through `to_wire` in a simulation."""
    vector = Signal(layout)
    m = Module()

    def assign(view: data.View) -> None:
        for name, field in view.shape():
            part = view[name]
            if isinstance(field.shape, WIRE_NUMBER):
                octets = field.shape.length
                number = Const(values[name], 8 * octets)
                m.d.comb += part.eq(ddp.to_wire(number, octets))
            elif isinstance(part, data.View):
                assign(part)
            else:
                m.d.comb += part.eq(values[name])

    assign(vector)
    result = []

    async def bench(ctx: Any) -> None:
        result.append(ctx.get(vector.as_value()))

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    return result[0].to_bytes(layout.size // 8, "little")


def tagged(rng: random.Random) -> tuple[dict[str, int], bytes]:
    values = {
        "version": rng.randrange(4),
        "reserved": rng.randrange(16),
        "last": rng.randrange(2),
        "tagged": 1,
        "rsvd_ulp": rng.getrandbits(8),
        "stag": rng.getrandbits(32),
        "tagged_offset": rng.getrandbits(64),
    }
    model = {name: value for name, value in values.items() if name != "tagged"}
    model["reserved"] <<= 2
    return values, TaggedHeader(**model).encode()


def untagged(rng: random.Random) -> tuple[dict[str, int], bytes]:
    values = {
        "version": rng.randrange(4),
        "reserved": rng.randrange(16),
        "last": rng.randrange(2),
        "tagged": 0,
        "rsvd_ulp": rng.getrandbits(8),
        "rsvd_ulp_word": rng.getrandbits(32),
        "qn": rng.getrandbits(32),
        "msn": rng.getrandbits(32),
        "mo": rng.getrandbits(32),
    }
    model = {name: value for name, value in values.items() if name != "tagged"}
    model["reserved"] <<= 2
    return values, UntaggedHeader(**model).encode()


def read_request(rng: random.Random) -> tuple[dict[str, int], bytes]:
    header, octets = untagged(rng)
    values = {
        "sink_stag": rng.getrandbits(32),
        "sink_tagged_offset": rng.getrandbits(64),
        "length": rng.getrandbits(32),
        "source_stag": rng.getrandbits(32),
        "source_tagged_offset": rng.getrandbits(64),
    }
    model = dict(values)
    model["size"] = model.pop("length")
    return header | values, octets + ReadRequest(**model).encode()


@pytest.mark.requirement("RDMAP-3.1-06", "RDMAP-4.1-01", "RDMAP-4.4-01", "DDP-4.2-01", "DDP-4.3-01")
@pytest.mark.parametrize(
    ("layout", "make"),
    [
        (ddp.TAGGED_HEADER, tagged),
        (ddp.UNTAGGED_HEADER, untagged),
        (rdmap.READ_REQUEST_ULPDU, read_request),
    ],
    ids=["tagged", "untagged", "read_request"],
)
def test_layout_agrees_with_the_reference_model(layout: data.Layout, make: Any) -> None:
    rng = seeded_random(make.__name__)
    for _ in range(5):
        values, octets = make(rng)
        assert layout.size == 8 * len(octets)
        assert decode(layout, octets) == values
        assert encode(layout, values) == octets


@pytest.mark.requirement("RDMAP-4.1-02", "RDMAP-4.1-05")
def test_rdmap_control_octet_and_opcodes() -> None:
    for opcode in Opcode:
        octet = control_octet(opcode, reserved=0x30)
        assert decode(rdmap.CONTROL, bytes([octet])) == {
            "opcode": rdmap.Opcode[opcode.name].value,
            "reserved": 3,
            "version": RDMAP_VERSION,
        }


@pytest.mark.requirement("DDP-4.2-01", "DDP-4.3-01")
def test_known_octets() -> None:
    """RFC 6581, 9.2: an empty RDMA Write starts with C1 40, an empty Read Request with 41 41."""
    write = decode(ddp.TAGGED_HEADER, bytes.fromhex("c140 00000001 0000000000000002"))
    assert write["tagged"] == write["last"] == write["version"] == 1
    assert (write["stag"], write["tagged_offset"]) == (1, 2)
    request = decode(ddp.UNTAGGED_HEADER, bytes.fromhex("4141 00000000 00000001 00000001 00000000"))
    assert request["tagged"] == 0
    assert (request["qn"], request["msn"], request["mo"]) == (1, 1, 0)


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="33 bits does not fit a wire field of 4 octets"):
        ddp.to_wire(Signal(33), 4)
    with pytest.raises(ValueError, match="12 bits; allowed: a multiple of 8"):
        ddp.from_wire(Signal(12))
