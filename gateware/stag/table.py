"""The STag table: every check of an STag and a tagged range, and the host address behind it."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, StagStatus
from stagecoach.gateware.stag.ports import StagClient
from stagecoach.gateware.stream.round_robin import choose_round_robin, preceded_round_robin

STAG_KEY_BITS = 8
"""Low bits of an STag that do not take part in finding its entry (the key of the verbs)."""

LOOKUP_CYCLES = 5
"""Cycles from an accepted request to its response."""


class StagTable(wiring.Component):
    """Entries found by STag bits 8 and up; an entry is valid only for its whole 32-bit STag.

    A request is answered `LOOKUP_CYCLES` cycles after it was accepted with the first failed check
    of INVALID, NOT_ASSOCIATED, NOT_PERMITTED, WRAP, BOUNDS, or with OK and the host address of the
    first byte. An `exclusive` request is NOT_PERMITTED for an STag of several streams. One request
    per cycle over all clients, round robin; responses come in request order. A range wraps if
    TO + octets is 2^64 or more (RFC 5041, 7.1). The checks of `octets` are made for 0 too.

    An accepted `write`, `invalidate` or `change` holds for every request accepted later.
    Invalidating an STag that is not in the table does nothing. After reset and after `clear`, all
    entries are made invalid; while `clearing`, nothing is accepted.

    A `fast` entry is written invalid: only a `change` of its PD, and of its QP if it is `scoped`,
    makes it valid, and may give it another key (RFC 5040 leaves this to the verbs: allocated, fast
    registered, invalidated, fast registered again). It stays in the table when it is invalidated,
    except by the first invalidator, which removes it whatever its key and state. A `change` that is
    refused changes nothing: of another PD or QP; an invalidation of an STag that is not valid; a
    registration of an entry that is valid or not `fast`.

    Parameters
    ----------
    config: sizes of the device.
    clients: number of request ports.
    invalidators: number of ports that invalidate; the first one goes first, before `change`, and
        is the one that frees entries.

    Members
    -------
    write: In(stream), sets the entry of `stag`.
    invalidate: In(stream) each, makes the entry of exactly this STag invalid.
    change: In(stream stag_change); `refused` with its `ready` if nothing was changed.
    clear: In(1), invalidates all entries.
    clearing: Out(1)
    clients: In(StagClient) each.
    """

    def __init__(self, config: RnicConfig, clients: int = 2, invalidators: int = 1) -> None:
        if clients < 1:
            raise ValueError(f"StagTable clients is {clients}; allowed: 1 or more")
        if invalidators < 1:
            raise ValueError(f"StagTable invalidators is {invalidators}; allowed: 1 or more")
        self._index_bits = (config.stags - 1).bit_length()
        self._stags = config.stags
        self._layouts = Layouts(config)
        super().__init__(
            {
                "write": In(stream.Signature(self._layouts.stag_entry)),
                "invalidate": In(stream.Signature(self._layouts.stag)).array(invalidators),
                "change": In(stream.Signature(self._layouts.stag_change)),
                "refused": Out(1),
                "clear": In(1),
                "clearing": Out(1),
                "clients": In(StagClient(self._layouts)).array(clients),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layouts = self._layouts
        clients = self.clients
        index = slice(STAG_KEY_BITS, STAG_KEY_BITS + self._index_bits)

        stored = data.StructLayout({"entry": layouts.stag_entry, "valid": 1})
        m.submodules.entries = entries = Memory(shape=stored, depth=self._stags, init=[])
        entry_write = entries.write_port()
        entry_read = entries.read_port()

        # Clearing takes one cycle per entry.
        clearing = Signal(init=1)
        swept = Signal(self._index_bits)
        m.d.comb += self.clearing.eq(clearing)
        with m.If(clearing):
            m.d.sync += swept.eq(swept + 1)
            with m.If(swept == self._stags - 1):
                m.d.sync += clearing.eq(0)
        with m.If(self.clear):
            m.d.sync += [clearing.eq(1), swept.eq(0)]

        # One request enters the pipeline per cycle: that of an invalidation, or of a client.
        find_invalidated = Signal()
        # Who asks: an invalidator, or after them `change`
        change_number = len(self.invalidate)
        invalidator = Signal(range(change_number + 1))
        invalidated = Signal(32)
        internal = Signal()
        request = Signal(layouts.stag_request)
        client = Signal(range(max(len(clients), 2)))
        valid = Signal()
        last_client = Signal.like(client)
        requests = [port.request.valid for port in clients]
        chosen = Signal.like(client)
        choose_round_robin(m, requests, last_client, chosen)
        # The `ready` of a client does not depend on its own request, which comes late.
        preceded = preceded_round_robin(m, requests, last_client)
        accept = Signal()
        m.d.comb += accept.eq(~clearing & ~find_invalidated)
        m.d.sync += [
            valid.eq(find_invalidated | (accept & Cat(requests).any())),
            internal.eq(find_invalidated),
            client.eq(chosen),
            request.eq(Array(c.request.payload.as_value() for c in clients)[chosen]),
        ]
        with m.If(accept & Cat(requests).any()):
            m.d.sync += last_client.eq(chosen)
        for number, port in enumerate(clients):
            m.d.comb += port.request.ready.eq(accept & ~preceded[number])
        with m.If(find_invalidated):
            m.d.sync += [
                request.stag.eq(invalidated),
                request.pd.eq(self.change.p.entry.pd),
                request.qp.eq(self.change.p.entry.qp),
            ]

        # Read: the entry is on its way; the end of the range needs no entry.
        m.d.comb += entry_read.addr.eq(request.stag[index])
        read_request = Signal(layouts.stag_request)
        range_end = Signal(65)
        m.d.sync += [
            read_request.eq(request),
            range_end.eq(request.tagged_offset + request.octets),
        ]

        # Found: the entry is in registers.
        found = Signal(stored)
        found_request = Signal(layouts.stag_request)
        wraps = Signal()
        m.d.sync += [
            found.eq(entry_read.data),
            found_request.eq(read_request),
            wraps.eq(range_end[64]),
        ]

        # Compared: everything but the upper bound, and what that needs.
        entry = found.entry
        failed = Signal(data.StructLayout({status.name.lower(): 1 for status in _CHECKS}))
        position = Signal(64)  # of the first byte in the region
        room = Signal(50)  # first position at which the range still fits; negative if none
        address = Signal(64)
        before_base = Signal()
        m.d.sync += [
            failed.invalid.eq(~found.valid | (entry.stag != found_request.stag)),
            failed.not_associated.eq(
                (entry.pd != found_request.pd) | (entry.scoped & (entry.qp != found_request.qp))
            ),
            failed.not_permitted.eq(
                (found_request.rights & ~entry.rights).any()
                | (found_request.exclusive & ~entry.scoped)
            ),
            failed.wrap.eq(wraps),
            Cat(position, before_base).eq(found_request.tagged_offset - entry.base),
            room.eq(entry.length - found_request.octets),
            address.eq(entry.address),
        ]

        # Of an entry that is to be changed: what stays of it, and what may be done.
        entry_layout = layouts.stag_entry
        kept = Signal(entry_layout)
        is_freed = Signal()  # the first invalidator means this entry
        is_registrable = Signal()

        # Bounded: the answer. The bounds join the other checks after their registers, because
        # the comparison takes most of its cycle.
        status = Signal(StagStatus)
        earlier_status = Signal(StagStatus)
        outside = Signal()
        host_address = Signal(64)
        earlier = Const(StagStatus.OK.value, 3)
        for check in reversed(_CHECKS):
            earlier = Mux(failed[check.name.lower()], check.value, earlier)
        m.d.sync += [
            earlier_status.eq(earlier),
            outside.eq(before_base | room[-1] | (position > room[:-1])),
            host_address.eq(address + position),
        ]
        m.d.comb += status.eq(earlier_status)
        with m.If((earlier_status == StagStatus.OK) & outside):
            m.d.comb += status.eq(StagStatus.BOUNDS)

        # Who gets the answer travels beside.
        stages = [(valid, internal, client)]
        for number in range(1, LOOKUP_CYCLES):
            before = stages[-1]
            after = tuple(
                Signal.like(signal, name=f"{name}_{number}")
                for signal, name in zip(before, ("valid", "internal", "client"), strict=True)
            )
            m.d.sync += [new.eq(old) for new, old in zip(after, before, strict=True)]
            stages.append(after)
        answered, answer_internal, _ = stages[-1]
        coming, coming_internal, coming_client = stages[-2]
        for number, port in enumerate(clients):
            m.d.sync += port.response_valid.eq(
                coming & ~coming_internal & (coming_client == number)
            )
            m.d.comb += [
                port.response.status.eq(status),
                port.response.address.eq(host_address),
            ]

        _, found_internal, _ = stages[2]
        with m.If(found_internal):
            same_index = entry.stag[STAG_KEY_BITS:] == found_request.stag[STAG_KEY_BITS:]
            foreign = (entry.pd != found_request.pd) | (
                entry.scoped & (entry.qp != found_request.qp)
            )
            m.d.sync += [
                *(kept[name].eq(entry[name]) for name in ("stag", "pd", "scoped", "qp", "fast")),
                is_freed.eq(
                    (found.valid & (entry.stag == found_request.stag)) | (entry.fast & same_index)
                ),
                is_registrable.eq(entry.fast & ~found.valid & same_index & ~foreign),
            ]

        m.d.comb += entry_write.addr.eq(self.write.payload.stag[index])
        m.d.comb += entry_write.data.entry.eq(self.write.payload)
        with m.If(clearing):
            m.d.comb += [
                entry_write.addr.eq(swept),
                # What `write` offers meanwhile is not there before it is taken
                entry_write.data.entry.fast.eq(0),
                entry_write.en.eq(1),
            ]

        is_refused = Signal()
        with m.FSM():
            # Looks for the entry of an STag to invalidate or to register, or takes a new entry.
            with m.State("IDLE"):
                change = self.change
                m.d.sync += [
                    invalidator.eq(change_number),
                    invalidated.eq(change.p.entry.stag),
                ]
                for number, port in reversed(list(enumerate(self.invalidate))):
                    with m.If(port.valid):
                        m.d.sync += [invalidator.eq(number), invalidated.eq(port.p.stag)]
                asked = change.valid | Cat(port.valid for port in self.invalidate).any()
                with m.If(~clearing & asked):
                    m.next = "ASK"
                with m.Elif(~clearing & self.write.valid):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.next = "IDLE"
                with m.If(~clearing):
                    m.d.comb += [
                        self.write.ready.eq(1),
                        entry_write.data.valid.eq(~self.write.p.fast),
                        entry_write.en.eq(1),
                    ]
            # The STag to invalidate enters the pipeline.
            with m.State("ASK"):
                m.d.comb += find_invalidated.eq(1)
                m.next = "FIND"
            # Waits until the entry was compared with the STag to invalidate.
            with m.State("FIND"), m.If(answered & answer_internal):
                m.d.sync += is_refused.eq(0)
                with m.If(invalidator == change_number):
                    with m.If(self.change.p.register):
                        m.d.sync += is_refused.eq(~is_registrable)
                        m.next = "REGISTER"
                        with m.If(~is_registrable):
                            m.next = "DONE"
                    with m.Elif(
                        (status == StagStatus.INVALID) | (status == StagStatus.NOT_ASSOCIATED)
                    ):
                        m.d.sync += is_refused.eq(1)
                        m.next = "DONE"
                    with m.Else():
                        m.next = "INVALIDATE"
                with m.Elif(Mux(invalidator == 0, is_freed, status != StagStatus.INVALID)):
                    m.next = "INVALIDATE"
                with m.Else():
                    m.next = "DONE"
            # Clears the entry; a `fast` one is kept. A sweep has forgotten it already.
            with m.State("INVALIDATE"):
                m.next = "DONE"
                with m.If(~clearing):
                    m.d.comb += [
                        entry_write.addr.eq(invalidated[index]),
                        entry_write.data.entry.eq(kept),
                        entry_write.data.entry.fast.eq(kept.fast & (invalidator != 0)),
                        entry_write.en.eq(1),
                    ]
            # Writes the entry, which a sweep may have forgotten.
            with m.State("REGISTER"):
                m.next = "DONE"
                with m.If(clearing):
                    m.d.sync += is_refused.eq(1)
                with m.Else():
                    m.d.comb += [
                        entry_write.addr.eq(invalidated[index]),
                        entry_write.data.entry.eq(self.change.p.entry),
                        entry_write.data.entry.scoped.eq(kept.scoped),
                        entry_write.data.entry.qp.eq(kept.qp),
                        entry_write.data.entry.fast.eq(1),
                        entry_write.data.valid.eq(1),
                        entry_write.en.eq(1),
                    ]
            # Tells that it is done.
            with m.State("DONE"):
                for number, port in enumerate(self.invalidate):
                    m.d.comb += port.ready.eq(invalidator == number)
                m.d.comb += [
                    self.change.ready.eq(invalidator == change_number),
                    self.refused.eq(is_refused),
                ]
                m.next = "IDLE"
        return m


_CHECKS = (
    StagStatus.INVALID,
    StagStatus.NOT_ASSOCIATED,
    StagStatus.NOT_PERMITTED,
    StagStatus.WRAP,
)
"""The checks before the bounds, first one first."""
