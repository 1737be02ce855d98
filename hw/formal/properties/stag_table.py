"""The STag table answers OK only for what RFC 5040, 5041 and 5042 let a peer do.

Three steps. What is stored is what was accepted at the ports; each request is answered at its own
port; and the answer is that of the RFCs for what is stored in the cycle after the request.
"""

from functools import reduce
from operator import and_
from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib import data

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, StagStatus
from stagecoach.gateware.stag.table import LOOKUP_CYCLES, STAG_KEY_BITS, StagTable
from stagecoach.hw.formal.harness import Harness
from stagecoach.hw.formal.property import Mutation, Property, in_harness

CONFIG = RnicConfig(stags=16, qps=4)
INDEX = slice(STAG_KEY_BITS, STAG_KEY_BITS + (CONFIG.stags - 1).bit_length())
NUMBER = slice(STAG_KEY_BITS, None)
"""The bits of an STag that are not the key."""


def checks_of(entry: Any, valid: Value, request: Any) -> dict[Any, Any]:
    """What must hold by RFC 5041, 7.1 and RFC 5040, 7.2, in the order of the table's answers."""
    end = request.tagged_offset + request.octets  # 65 bits: no carry is lost
    return {
        StagStatus.INVALID: valid & (entry.stag == request.stag),
        StagStatus.NOT_ASSOCIATED: (entry.pd == request.pd)
        & (~entry.scoped | (entry.qp == request.qp)),
        StagStatus.NOT_PERMITTED: ((request.rights & entry.rights) == request.rights)
        & (entry.scoped | ~request.exclusive),
        StagStatus.WRAP: end < (1 << 64),
        StagStatus.BOUNDS: (request.tagged_offset >= entry.base)
        & (end <= entry.base + entry.length),
    }


def status_of(checks: dict[Any, Any]) -> Value:
    """The first check that fails."""
    status: Value = Value.cast(StagStatus.OK)
    for failure, holds in reversed(checks.items()):
        status = Mux(holds, status, failure)
    return status


def _answered(h: Harness) -> None:
    table = StagTable(CONFIG, clients=2, invalidators=2)
    inside = h.block(table)
    request = inside.signal("request")
    suffixes = ("", *(f"_{number}" for number in range(1, LOOKUP_CYCLES)))
    running = Signal(LOOKUP_CYCLES)
    h.m.d.sync += running.eq((running << 1) | 1)
    for number, client in enumerate(table.clients):
        accepted = client.request.valid & client.request.ready
        waiting = Signal(LOOKUP_CYCLES, name=f"waiting_{number}")
        h.m.d.sync += waiting.eq((waiting << 1) | accepted)
        asked = h.past(client.request.payload)
        h.invariant(f"request of {number}", ~waiting[0] | (Value.cast(request) == asked))
        h.check(f"answer to {number}", client.response_valid == waiting[-1])
        for stage, suffix in enumerate(suffixes):
            valid, internal, who = (
                inside.signal(name + suffix) for name in ("valid", "internal", "client")
            )
            h.invariant(
                f"stage {stage} of {number}",
                waiting[stage] == (valid & ~internal & (who == number)),
            )
            h.invariant(f"since {stage} of {number}", ~waiting[stage] | running[stage])


def _status(h: Harness) -> None:
    table = StagTable(CONFIG, clients=2, invalidators=2)
    inside = h.block(table)
    m = h.m
    place = h.constant(range(CONFIG.stags), "place")
    stored = h.word(inside.memory("entries"), place)
    read, *_ = inside.memory("entries").read_ports

    # The request goes through the pipeline, and what is stored when it is read.
    layout = Layouts(CONFIG).stag_request
    requests = [data.View(layout, inside.signal("request"))]
    for name in ("read", "found", "compared"):
        requests.append(Signal(layout, name=f"{name}_asked"))
        m.d.sync += requests[-1].eq(requests[-2])
    _, read_asked, found_asked, asked = requests
    read_entry, found_entry, entry = (
        Signal(stored.shape(), name=name)
        for name in ("read_entry", "found_entry", "compared_entry")
    )
    m.d.sync += [read_entry.eq(stored), found_entry.eq(read_entry), entry.eq(found_entry)]
    # A reset clears the pipeline, and not what the memory has read.
    known = Signal(LOOKUP_CYCLES - 2)
    m.d.sync += known.eq((known << 1) | 1)
    about = [
        (each.stag[INDEX] == place) & k for each, k in zip(requests, Cat(1, known), strict=True)
    ]

    def same(a: Any, b: Any) -> Value:
        return Value.cast(a) == Value.cast(b)

    h.invariant("read", same(inside.signal("read_request"), read_asked))
    h.invariant("end", inside.signal("range_end") == read_asked.tagged_offset + read_asked.octets)
    h.invariant("found request", same(inside.signal("found_request"), found_asked))
    end = found_asked.tagged_offset + found_asked.octets
    h.invariant("wraps", inside.signal("wraps") == end[64])
    h.invariant("read entry", ~about[1] | same(read.data, read_entry))
    h.invariant("found entry", ~about[2] | same(inside.signal("found"), found_entry))

    checks = checks_of(entry.entry, entry.valid, asked)
    failed = inside.signal("failed")
    for number, status in enumerate(list(checks)[:-1]):
        h.invariant(f"failed {status.name}", ~about[3] | (failed[number] == ~checks[status]))
    offset = asked.tagged_offset - entry.entry.base
    h.invariant("position", ~about[3] | (inside.signal("position") == offset[:64]))
    h.invariant("before", ~about[3] | (inside.signal("before_base") == offset[64]))
    room = Signal.like(inside.signal("room"), name="room_asked")
    m.d.comb += room.eq(entry.entry.length - asked.octets)
    h.invariant("room", ~about[3] | (inside.signal("room") == room))
    h.invariant("base address", ~about[3] | (inside.signal("address") == entry.entry.address))

    # What the RFCs say, a cycle later.
    expected = h.past(status_of(checks), "expected")
    address = h.past((entry.entry.address + offset)[:64], "expected_address")
    answered = h.past(about[3])
    for client in table.clients:
        is_ok = client.response.status == StagStatus.OK
        h.check("status", ~answered | (Value.cast(client.response.status) == expected))
        h.check("address", ~(answered & is_ok) | (client.response.address == address))
        break


def _stored(h: Harness) -> None:
    table = StagTable(CONFIG, clients=2, invalidators=2)
    inside = h.block(table)
    m = h.m
    place = h.constant(range(CONFIG.stags), "place")
    write, change, ports = table.write, table.change, table.invalidate
    for offered in (write, change, *ports):
        h.assume(h.held(offered))

    # The entry at `place`, as the docstring of the table says it, and with a change taken now.
    layout = Layouts(CONFIG).stag_entry
    entry, valid = Signal(layout), Signal()
    now, valid_now = Signal(layout), Signal()
    m.d.comb += [now.eq(entry), valid_now.eq(valid)]
    m.d.sync += [entry.eq(now), valid.eq(valid_now)]
    wanted = change.p.entry
    with m.If(write.valid & write.ready & (write.p.stag[INDEX] == place)):
        m.d.sync += [entry.eq(write.p), valid.eq(~write.p.fast)]
    with m.If(table.clear | table.clearing):
        m.d.sync += [entry.fast.eq(0), valid.eq(0)]
    for number, port in enumerate(ports):
        named = valid & (port.p.stag == entry.stag)
        with m.If(port.valid & port.ready & named):
            m.d.comb += valid_now.eq(0)
        if number == 0:  # frees the entry
            named |= entry.fast & (port.p.stag[NUMBER] == entry.stag[NUMBER])
            with m.If(port.valid & port.ready & named):
                m.d.comb += [valid_now.eq(0), now.fast.eq(0)]
    changed = change.valid & change.ready & ~table.refused & ~table.clearing
    changed &= wanted.stag[INDEX] == place
    with m.If(changed & change.p.register):
        m.d.comb += [
            valid_now.eq(1),
            now.eq(wanted),
            now.scoped.eq(entry.scoped),
            now.qp.eq(entry.qp),
            now.fast.eq(1),
        ]
    with m.Elif(changed):
        m.d.comb += valid_now.eq(0)

    # What was not refused was allowed.
    associated = (wanted.pd == entry.pd) & (~entry.scoped | (wanted.qp == entry.qp))
    free = entry.fast & ~valid & (wanted.stag[NUMBER] == entry.stag[NUMBER])
    named = valid & (wanted.stag == entry.stag)
    allowed = associated & Mux(change.p.register, free, named)
    h.check("a change is allowed", ~changed | allowed)

    # What is stored; a change before it is taken.
    stored = h.word(inside.memory("entries"), place)
    held, swept = stored.entry, inside.signal("swept")
    settled = ~(table.clearing & (swept <= place))
    keys = [held.stag[NUMBER] == now.stag[NUMBER]]
    keys += [held[name] == now[name] for name in ("pd", "scoped", "qp")]
    same = Value.cast(held) == Value.cast(now)
    h.check("only what was accepted", ~(settled & stored.valid) | (valid_now & same))
    h.check("nothing is lost", ~(settled & valid_now) | stored.valid)
    h.check("may be registered", ~(settled & held.fast) | (now.fast & reduce(and_, keys)))

    h.invariant("cleared", ~table.clearing | ~(valid | entry.fast))

    h.invariant("place", ~(valid | entry.fast) | (entry.stag[INDEX] == place))

    # How the state machine gets there.
    busy = inside.in_state("ASK", "FIND", "INVALIDATE", "REGISTER", "DONE")
    finds = inside.in_state("FIND")
    stag, asker = inside.signal("invalidated"), inside.signal("invalidator")
    by_change = asker == len(ports)
    about = (stag[INDEX] == place) & ~table.clearing
    h.invariant("states", inside.legal_state())
    h.invariant("askers", asker <= len(ports))
    for number, port in enumerate(ports):
        asks = port.valid & (port.p.stag == stag)
        h.invariant(f"invalidation {number}", ~(busy & (asker == number)) | asks)
    asks = change.valid & (wanted.stag == stag)
    h.invariant("change", ~(busy & by_change) | asks)
    h.invariant("write", ~inside.in_state("WRITE") | write.valid)

    # An STag to find is in one stage of the pipeline.
    names = ("internal", *(f"internal_{number}" for number in range(1, LOOKUP_CYCLES)))
    stages = [inside.signal(name) for name in names]
    h.invariant("finds", Value.cast(sum(stages)) == finds)
    for name, stage in zip(names, stages, strict=True):
        valid_stage = inside.signal(name.replace("internal", "valid"))
        h.invariant(f"valid {name}", ~stage | valid_stage)
    # A sweep that begins meanwhile lasts longer.
    writes, done = inside.in_state("INVALIDATE", "REGISTER"), inside.in_state("DONE")
    for number, step in enumerate((inside.in_state("ASK"), *stages, writes, done)):
        h.invariant(f"sweep {number}", ~(step & table.clearing) | (swept <= number))
    read, *_ = inside.memory("entries").read_ports
    asked = Layouts(CONFIG).stag_request
    for number, name in enumerate(("request", "read_request", "found_request")):
        request = data.View(asked, inside.signal(name))
        mine = (request.pd == wanted.pd) & (request.qp == wanted.qp)
        right = (request.stag == stag) & (mine | ~by_change)
        h.invariant(f"{name} is asked", ~stages[number] | right)
    for stage, found in ((stages[1], read.data), (stages[2], inside.signal("found"))):
        h.invariant("found", ~(stage & about) | (Value.cast(found) == Value.cast(stored)))
    names_it = stored.valid & (held.stag == stag)
    numbers_it = held.fast & (held.stag[NUMBER] == stag[NUMBER])
    in_reach = (wanted.pd == held.pd) & (~held.scoped | (wanted.qp == held.qp))
    registrable = ~stored.valid & numbers_it & in_reach
    failed = inside.signal("failed")
    h.invariant("invalid", ~(stages[3] & about) | (failed[0] == ~names_it))
    h.invariant("foreign", ~(stages[3] & about & by_change) | (failed[1] == ~in_reach))
    earlier = inside.signal("earlier_status")
    is_invalid = earlier == Value.cast(StagStatus.INVALID)
    is_foreign = earlier == Value.cast(StagStatus.NOT_ASSOCIATED)
    h.invariant("status invalid", ~(stages[4] & about) | (is_invalid == ~names_it))
    h.invariant(
        "status foreign", ~(stages[4] & about & by_change & names_it) | (is_foreign == ~in_reach)
    )
    decided = (stages[3] | stages[4] | writes) & about
    kept = data.View(layout, inside.signal("kept"))
    for name in ("stag", "pd", "scoped", "qp", "fast"):
        h.invariant(f"kept {name}", ~decided | (kept[name] == held[name]))
    h.invariant("freed", ~decided | (inside.signal("is_freed") == (names_it | numbers_it)))
    h.invariant(
        "registrable", ~(decided & by_change) | (inside.signal("is_registrable") == registrable)
    )
    refused = inside.signal("is_refused")
    h.invariant("not refused", ~writes | ~refused)
    h.invariant("registers", ~inside.in_state("REGISTER") | (by_change & change.p.register))
    h.invariant("may register", ~(inside.in_state("REGISTER") & about) | registrable)
    may = Mux(
        asker == 0, names_it | numbers_it, names_it & (~by_change | (in_reach & ~change.p.register))
    )
    h.invariant("may invalidate", ~(inside.in_state("INVALIDATE") & about) | may)


BLOCK = "stag.table.StagTable"


def _mutations(*changes: tuple[str, str]) -> tuple[Mutation, ...]:
    return tuple(Mutation("stagecoach.gateware.stag.table", old, new) for old, new in changes)


PROPERTIES = (
    Property(
        BLOCK,
        "each request has one answer, at its own port",
        in_harness(_answered),
        mutations=_mutations(
            ("(coming_client == number)", "(coming_client == 0)"),
            ("coming & ~coming_internal", "coming"),
        ),
        depth=1,
    ),
    Property(
        BLOCK,
        "what is stored is what was accepted",
        in_harness(_stored),
        mutations=_mutations(
            ("entry_write.data.valid.eq(~self.write.p.fast)", "entry_write.data.valid.eq(1)"),
            ("~found.valid & same_index & ~foreign", "~found.valid & same_index"),
            ("kept.fast & (invalidator != 0)", "kept.fast"),
            ("entry_write.data.entry.fast.eq(0),", ""),
            ("m.d.sync += is_refused.eq(0)", "pass"),
        ),
        depth=1,
    ),
    Property(
        BLOCK,
        "the answer is the first check of RFC 5041, 7.1 that fails, or the host address",
        in_harness(_status),
        mutations=_mutations(
            ("position > room[:-1]", "position > room[:-1] + 1"),
            ("before_base | room[-1] |", "before_base |"),
            ("wraps.eq(range_end[64])", "wraps.eq(0)"),
            (
                "failed.not_associated.eq(\n                (entry.pd != found_request.pd)",
                "failed.not_associated.eq(\n                (entry.pd != entry.pd)",
            ),
            ("found_request.rights & ~entry.rights", "found_request.rights & ~entry.rights & 7"),
            ("found_request.exclusive & ~entry.scoped", "0"),
            ("(entry.stag != found_request.stag)", "(entry.stag[8:] != found_request.stag[8:])"),
            ("host_address.eq(address + position)", "host_address.eq(address | position)"),
        ),
        depth=1,
    ),
)
