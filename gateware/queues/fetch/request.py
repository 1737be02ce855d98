"""Requests units from host memory."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from stagecoach.gateware.host_memory import MEMORY_COMMAND
from stagecoach.gateware.queues.fetch.visit import read_layout
from stagecoach.gateware.queues.prefetch_memory import UNIT_OCTETS, PrefetchMemory
from stagecoach.gateware.queues.unit_arrivals import arrival_tag


class FetchRequest(wiring.Component):
    """Makes a read a command and a tag, and counts the reads that are on their way.

    Latency: a cycle from `read` to `command`; `tag` comes with `read`. Throughput: a read every
    third cycle, if `command` is taken at once. `read` is taken while `may_fetch`. That is low while
    `command` is not taken, tags have no room, or `outstanding` reads are on their way, so their
    count does not wrap.

    Parameters
    ----------
    memory: where units stand. outstanding: reads that may be on their way.

    Members
    -------
    read: In(stream read_layout). command: Out(stream MEMORY_COMMAND).
    requested: Out(1), a pulse: `read` is taken, and has the tag `tag`, Out(arrival_tag).
    tag_room: In(1), there is room for a tag. It stays high until one comes.
    ended: In(1), a pulse for each read that has ended.
    may_fetch: Out(1), there is room for a read. It stays high until one is requested.
    quiet: Out(1), none is on its way.
    fetch: Out(1), a pulse: one for `fetch_lane`, Out, begins.
    """

    def __init__(self, memory: PrefetchMemory, *, outstanding: int):
        config = memory.config
        self._most = outstanding
        super().__init__(
            {
                "read": In(stream.Signature(read_layout(memory))),
                "command": Out(stream.Signature(MEMORY_COMMAND)),
                "requested": Out(1),
                "tag": Out(arrival_tag(config, memory.address_bits)),
                "tag_room": In(1),
                "ended": In(1),
                "may_fetch": Out(1),
                "quiet": Out(1),
                "fetch": Out(1),
                "fetch_lane": Out(range(config.prefetch_lanes)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        read, command = self.read.payload, self.command
        outstanding = Signal(range(self._most + 1))
        m.d.comb += [
            self.read.ready.eq(self.may_fetch),
            self.requested.eq(self.read.valid & self.read.ready),
            self.tag.qp.eq(read.qp),
            self.tag.address.eq(read.place),
            self.tag.copies.eq(read.copies),
            self.quiet.eq(outstanding == 0),
            self.fetch.eq(self.requested & read.home.in_lane),
            self.fetch_lane.eq(read.home.lane),
        ]
        m.d.sync += [
            outstanding.eq(outstanding + self.requested - self.ended),
            self.may_fetch.eq(
                ~command.valid & ~self.requested & (outstanding < self._most) & self.tag_room
            ),
        ]
        with m.If(command.ready):
            m.d.sync += command.valid.eq(0)
        with m.If(self.requested):
            m.d.sync += [
                command.valid.eq(1),
                command.payload.address.eq(read.address),
                command.payload.octets.eq(read.units << exact_log2(UNIT_OCTETS)),
            ]
        return m
