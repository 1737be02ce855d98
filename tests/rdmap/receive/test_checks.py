"""Each kind of segment has the cause of the first check that fails, in the cycle that is said.

The lists of checks are compared with the reference model in tests/rdmap/test_checks.py; here, what
goes into them, and when.
"""

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import ULPDU_HEADER_OCTETS, Layouts
from stagecoach.gateware.rdmap.receive.checks import ReceiveChecks
from stagecoach.gateware.rdmap.receive.context import CONTEXT
from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.hw.interface.queue_entries import AtomicOperation
from stagecoach.sim.cosim.streams import pack, seeded_random, start_clock_and_reset
from stagecoach.sim.model import rdmap
from stagecoach.sim.model.ddp import TaggedHeader, UntaggedHeader
from stagecoach.sim.model.errors import StreamError
from stagecoach.sim.model.extensions import Extensions
from stagecoach.sim.model.rdmap import Opcode
from stagecoach.sim.model.sink import check_header
from tests.support.runner import parameter, run_cocotb

CASES = 1200
NUMBERS = 1 << 32
TAGGED_OCTETS, UNTAGGED_OCTETS = 14, 18
READ_REQUEST_OCTETS, ATOMIC_REQUEST_OCTETS, ATOMIC_RESPONSE_OCTETS = 28, 52, 12
IMMEDIATE_OCTETS = 8
AFTER_CONTEXT = {
    "send_cause": 1,
    "immediate_cause": 1,
    "request_cause": 1,
    "atomic_request_cause": 1,
    "response_cause": 2,
    "atomic_response_cause": 2,
}
"""Cycles from `context` to each cause."""

KINDS = ("send", "immediate", "request", "atomic_request", "response", "atomic_response")


@pytest.mark.parametrize(("qps", "depth"), [(2, 1), (256, 64)])
def test_receive_checks(qps: int, depth: int) -> None:
    config = RnicConfig(qps=qps, read_queue_depth=depth)
    parameters = {"QPS": str(qps), "DEPTH": str(depth)}
    run_cocotb(ReceiveChecks(config), __name__, parameters=parameters, quick=True)


def first(*checks: tuple[bool, Cause]) -> Cause:
    return next((cause for failed, cause in checks if failed), Cause.NONE)


def causes_of(
    fields: dict[str, int], context: dict[str, int], state: dict[str, int], read: dict[str, int]
) -> dict[str, Cause]:
    """What is wrong with a segment, were it of each kind (RFC 5040, 7; RFC 5041, 7; RFC 7306)."""
    payload, last = fields["payload"], bool(fields["last"])
    msn, mo = fields["msn"], fields["mo"]
    unused = state["outstanding_level"] == 0
    at_request = (
        (msn != context["request_msn"], Cause.UNTAGGED_MSN),
        (state["inbound_level"] >= state["ird"], Cause.TOO_MANY_READ_REQUESTS),
        (mo != 0, Cause.UNTAGGED_MO),
    )
    supported = [AtomicOperation.FETCH_ADD, AtomicOperation.CMP_SWAP]
    supported += [] if state["strict"] else [AtomicOperation.SWAP]
    remaining = (read["length"] - context["response_octets"]) % NUMBERS
    offset = (read["sink_tagged_offset"] + context["response_octets"]) % (1 << 64)
    filled = payload != 0
    return {
        "send_cause": first(
            (msn != context["send_msn"], Cause.UNTAGGED_MSN),
            (state["posted"] == 0, Cause.UNTAGGED_NO_BUFFER),
            (mo != context["send_mo"], Cause.UNTAGGED_MO),
        ),
        "immediate_cause": first(
            (payload > IMMEDIATE_OCTETS, Cause.UNTAGGED_TOO_LONG),
            (bool(context["send_begun"]), Cause.UNEXPECTED_OPCODE),
            (payload < IMMEDIATE_OCTETS or not last, Cause.IMMEDIATE_TOO_SHORT),
        ),
        "request_cause": first(
            *at_request,
            (payload > READ_REQUEST_OCTETS, Cause.READ_REQUEST_TOO_LONG),
            (payload < READ_REQUEST_OCTETS or not last, Cause.READ_REQUEST_TOO_SHORT),
        ),
        "atomic_request_cause": first(
            *at_request,
            (payload > ATOMIC_REQUEST_OCTETS, Cause.ATOMIC_REQUEST_TOO_LONG),
            (payload < ATOMIC_REQUEST_OCTETS or not last, Cause.ATOMIC_REQUEST_TOO_SHORT),
            (fields["operation"] not in supported, Cause.ATOMIC_OPERATION_UNSUPPORTED),
        ),
        "response_cause": first(
            (unused or bool(read["atomic"]), Cause.UNSOLICITED_READ_RESPONSE),
            (filled and fields["stag"] != read["sink_stag"], Cause.READ_RESPONSE_STAG),
            (filled and fields["tagged_offset"] != offset, Cause.READ_RESPONSE_RANGE),
            (payload > remaining or (last and payload != remaining), Cause.READ_RESPONSE_RANGE),
        ),
        "atomic_response_cause": first(
            (msn != context["atomic_msn"], Cause.UNTAGGED_MSN),
            (unused or not read["atomic"], Cause.UNSOLICITED_ATOMIC_RESPONSE),
            (mo != 0, Cause.UNTAGGED_MO),
            (payload > ATOMIC_RESPONSE_OCTETS, Cause.ATOMIC_RESPONSE_TOO_LONG),
            (payload < ATOMIC_RESPONSE_OCTETS or not last, Cause.ATOMIC_RESPONSE_TOO_SHORT),
            (fields["identifier"] != context["atomic_msn"], Cause.ATOMIC_RESPONSE_IDENTIFIER),
        ),
    }


class Bench:
    """Shows a segment, and a cycle later what is known of its QP; noise before."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, seeded_random(parameter("DEPTH"))
        self.depth = int(parameter("DEPTH"))
        layouts = Layouts(RnicConfig(qps=int(parameter("QPS")), read_queue_depth=self.depth))
        self.segment, self.outstanding = layouts.segment, layouts.outstanding_request
        self.ports = ("posted", "ird", "strict", "inbound_level", "outstanding_level")
        self.noise()
        for name in ("segment", "rfc7306"):
            getattr(dut, name).value = 0

    def noise(self) -> None:
        for name in (*self.ports, "context", "outstanding_head"):
            port = getattr(self.dut, name)
            port.value = self.rng.getrandbits(len(port))

    def show(self, octets: bytes, rfc7306: bool) -> None:
        whole = octets + self.rng.randbytes(ULPDU_HEADER_OCTETS)
        header = int.from_bytes(whole[:ULPDU_HEADER_OCTETS], "little")
        fields = {"ulpdu_length": len(octets), "header": header}
        self.dut.segment.value = pack(self.segment, fields)
        self.dut.rfc7306.value = int(rfc7306)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_headers(dut: Any) -> None:
    """`header_failed` a cycle after the segment, the cause two; those of the model."""
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    seen = set()
    for _ in range(CASES):
        opcode = rng.choice([*Opcode, rng.randrange(16)])
        control = rdmap.control_octet(opcode, version=1 if rng.random() < 0.9 else 2)
        version = 1 if rng.random() < 0.9 else rng.randrange(4)
        tagged = opcode in rdmap.TAGGED_OPCODES if rng.random() < 0.9 else rng.random() < 0.5
        qn = rdmap.QUEUE_OF.get(opcode, 0) if rng.random() < 0.9 else rng.randrange(5)
        header: TaggedHeader | UntaggedHeader = UntaggedHeader(
            qn, 1, 0, True, control, rng.getrandbits(32), version
        )
        if tagged:
            header = TaggedHeader(rng.getrandbits(32), 0, True, control, version)
        octets = header.encode() + rng.randbytes(rng.choice([0, 4, 28, 900]))
        octets = octets[: rng.choice([len(octets), len(octets), rng.randint(13, 19)])]
        extensions = rng.choice([Extensions(), None])
        expected = None
        try:
            check_header(octets, extensions)
        except StreamError as failure:
            expected = failure.error
        bench.show(octets, extensions is not None)
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        is_terminate = expected is None and opcode == Opcode.TERMINATE
        assert bool(dut.header_failed.value) == (expected is not None or is_terminate)
        if len(octets) >= UNTAGGED_OCTETS:
            size = TAGGED_OCTETS if tagged else UNTAGGED_OCTETS
            assert int(dut.payload.value) == len(octets) - size
        await RisingEdge(dut.clk)
        cause = Cause(int(dut.header_cause.value))
        if is_terminate:
            assert cause in (Cause.TERMINATE_RECEIVED, Cause.TERMINATE_MALFORMED)
            seen.add(cause)
        else:
            assert CODES[cause][0] == expected, octets.hex()
            seen.add(expected)
    assert len(seen) > 7 and {Cause.TERMINATE_RECEIVED, Cause.TERMINATE_MALFORMED} <= seen


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def check_what_the_qp_decides(dut: Any) -> None:
    bench = Bench(dut)
    rng = bench.rng
    await start_clock_and_reset(dut)
    seen: dict[str, set[Cause]] = {name: set() for name in AFTER_CONTEXT}

    def near(value: int, bits: int = 32) -> int:
        """Mostly the value, else one that differs in one bit."""
        return value if rng.random() < 0.85 else value ^ 1 << rng.randrange(bits)

    for number in range(4 * CASES):
        kind = KINDS[number % len(KINDS)]
        context = {name: rng.getrandbits(32) for name in ("send_msn", "send_mo", "request_msn")}
        context |= {"atomic_msn": rng.getrandbits(32), "send_begun": int(rng.random() < 0.3)}
        context |= {"send_opcode": rng.choice([0x3, 0x4, 0x5, 0x6])}
        context |= {"response_octets": rng.choice([0, rng.getrandbits(32)])}
        depth = bench.depth
        state = {"posted": rng.choice([0, 1, 1, 1 << 15, 65535]), "strict": rng.getrandbits(1)}
        state |= {"ird": rng.choice([depth, depth, rng.randint(0, depth)])}
        state |= {"inbound_level": rng.choice([0, state["ird"], max(state["ird"] - 1, 0)])}
        state |= {"outstanding_level": rng.choice([0, 1, depth, depth])}
        size = {
            "immediate": IMMEDIATE_OCTETS,
            "request": READ_REQUEST_OCTETS,
            "atomic_request": ATOMIC_REQUEST_OCTETS,
            "atomic_response": ATOMIC_RESPONSE_OCTETS,
        }.get(kind, rng.choice([0, 1, 300]))
        payload = size if rng.random() < 0.8 else max(size + rng.choice([-1, 1, 40]), 0)
        length = (context["response_octets"] + payload) % NUMBERS
        read = {
            "atomic": int((kind == "atomic_response") ^ (rng.random() < 0.1)),
            "sink_stag": rng.getrandbits(32),
            "sink_tagged_offset": rng.getrandbits(64),
            "length": (length + rng.choice([0, 0, 0, 1, -1])) % NUMBERS,
        }
        last = int(rng.random() < 0.8)
        opcode = rng.choice([context["send_opcode"], 0x3, 0x5])
        control = rdmap.control_octet(opcode)
        body = bytearray(rng.randbytes(payload))
        fields = {"payload": payload, "last": last}
        if kind == "response":
            offset = read["sink_tagged_offset"] + context["response_octets"]
            fields |= {"stag": near(read["sink_stag"])}
            fields |= {"tagged_offset": near(offset % (1 << 64), 64)}
            tagged = TaggedHeader(fields["stag"], fields["tagged_offset"], bool(last), control)
            octets = tagged.encode() + body
        else:
            msn = {"send": "send_msn", "immediate": "send_msn", "atomic_response": "atomic_msn"}
            mo = context["send_mo"] if kind == "send" else 0
            fields |= {"msn": near(context[msn.get(kind, "request_msn")]), "mo": near(mo)}
            if kind == "atomic_request":
                body[3:4] = bytes([rng.choice([0, 1, 2, rng.randrange(16)])])
            if kind == "atomic_response":
                body[0:4] = near(context["atomic_msn"]).to_bytes(4, "big")
            body = body[:payload]
            word = rng.getrandbits(32)
            untagged = UntaggedHeader(
                rng.randrange(4), fields["msn"], fields["mo"], bool(last), control, word
            )
            octets = untagged.encode() + body
            fields |= {"operation": body[3] & 0xF if len(body) > 3 else 0}
            fields |= {"identifier": int.from_bytes(body[:4], "big")}
        bench.show(octets, True)
        bench.noise()
        await RisingEdge(dut.clk)
        for name in bench.ports:
            getattr(dut, name).value = state[name]
        dut.context.value = pack(CONTEXT, context)
        dut.outstanding_head.value = pack(bench.outstanding, read)
        # Only the causes of its own kind mean something.
        missing = {"stag": 0, "tagged_offset": 0, "msn": 0, "mo": 0, "operation": 0}
        causes = causes_of(missing | {"identifier": 0} | fields, context, state, read)
        name = f"{kind}_cause"
        for _ in range(1 + AFTER_CONTEXT[name]):
            await RisingEdge(dut.clk)
        if kind == "send":
            other = context["send_begun"] and opcode != context["send_opcode"]
            assert bool(dut.other_opcode.value) == bool(other)
        assert Cause(int(getattr(dut, name).value)) is causes[name], (fields, context, state, read)
        seen[name].add(causes[name])
        received = (context["response_octets"] + payload) % NUMBERS
        assert int(dut.response_octets.value) == received
    assert [len(seen[name]) for name in AFTER_CONTEXT] == [4, 4, 6, 7, 4, 7]
