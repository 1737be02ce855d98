"""What the transmitter remembers of a QP between two of its FPDUs."""

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpStrobe
from stagecoach.hw.interface.queue_entries import SCATTER_GATHER_ELEMENTS


def sends_bits(config: RnicConfig) -> int:
    """Width of a count of sends: modulo twice the most that can be in flight."""
    return config.pending_sends.bit_length()


def progress_layout(config: RnicConfig) -> data.StructLayout:
    """Where a QP stands in its stream and in the message that it sends."""
    return data.StructLayout(
        {
            "position": 32,  # of the next FPDU in the LLP stream
            "active": 1,  # a message has begun and not ended; the four below tell how far it is
            "responding": 1,  # it is a response, else a send entry
            "element": range(SCATTER_GATHER_ELEMENTS + 1),
            "offset": 32,  # in the element
            "done": 32,  # bytes of the message; 0 if not active
            "remaining": 32,
            "prefer_response": 1,  # whose turn it is when both kinds wait
            "send_msn": 32,  # of the next message (RFC 5041, 4.3)
            "read_msn": 32,
            "response_msn": 32,  # MSN that the oldest inbound request had
            "atomic_begun": 1,  # the oldest inbound request is an atomic that the unit has
            "atomic_response_msn": 32,  # of the next Atomic Response
            "atomic_identifier": 32,  # of the next Atomic Request: the MSN of its response
            "issued": sends_bits(config),  # sends, to be compared with `RetiredSends`
        }
    )


def settings_layout(config: RnicConfig) -> data.StructLayout:
    """What CONNECT says about a QP."""
    return data.StructLayout(
        {"ord": range(config.read_queue_depth + 1), "crc": 1, "transmit_markers": 1}
    )


HALT = data.StructLayout(
    {
        "halted": 1,  # nothing is sent any more: an error, or not connected
        "units": 7,  # position at which that is so, in units of 4 bytes mod 128
    }
)
"""Whether a QP sends nothing any more; where its progress stands does not matter then."""


class TransmitContexts(wiring.Component):
    """Progress, halt, settings and PD of every QP.

    Members
    -------
    qp: In(qp); `progress`, `halt`, `settings` and `pd` are those of QP `qp` one cycle ago.
    followed: In, the progress that QP `qp` gets with `store`.
    halting: In, the halt that QP `halting_qp` gets with `set_halt`.
    command: In(qp_command); QP `qp` gets its settings with `set_settings`, its PD with `set_pd`.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        self._progress = progress_layout(config)
        self._settings = settings_layout(config)
        super().__init__(
            {
                "qp": In(config.qp_bits),
                "progress": Out(self._progress),
                "settings": Out(self._settings),
                "pd": Out(16),
                "followed": In(self._progress),
                "store": In(1),
                "halt": Out(HALT),
                "halting": In(HALT),
                "halting_qp": In(config.qp_bits),
                "set_halt": In(1),
                "command": In(Layouts(config).qp_command),
                "set_settings": In(1),
                "set_pd": In(1),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        qps = self._config.qps
        m.submodules.progresses = progresses = Memory(shape=self._progress, depth=qps, init=[])
        m.submodules.halts = halts = Memory(shape=HALT, depth=qps, init=[])
        m.submodules.all_settings = all_settings = Memory(shape=self._settings, depth=qps, init=[])
        m.submodules.pds = pds = Memory(shape=16, depth=qps, init=[])
        progress_write, progress_read = progresses.write_port(), progresses.read_port()
        halt_write, halt_read = halts.write_port(), halts.read_port()
        settings_write, settings_read = all_settings.write_port(), all_settings.read_port()
        pd_write, pd_read = pds.write_port(), pds.read_port()
        m.d.comb += [
            progress_read.addr.eq(self.qp),
            halt_read.addr.eq(self.qp),
            settings_read.addr.eq(self.qp),
            pd_read.addr.eq(self.qp),
            self.progress.eq(progress_read.data),
            self.halt.eq(halt_read.data),
            self.settings.eq(settings_read.data),
            self.pd.eq(pd_read.data),
            progress_write.addr.eq(self.qp),
            progress_write.data.eq(self.followed),
            progress_write.en.eq(self.store),
            halt_write.addr.eq(self.halting_qp),
            halt_write.data.eq(self.halting),
            halt_write.en.eq(self.set_halt),
            settings_write.addr.eq(self.qp),
            settings_write.data.ord.eq(self.command.ord),
            settings_write.data.crc.eq(self.command.crc),
            settings_write.data.transmit_markers.eq(self.command.transmit_markers),
            settings_write.en.eq(self.set_settings),
            pd_write.addr.eq(self.qp),
            pd_write.data.eq(self.command.pd),
            pd_write.en.eq(self.set_pd),
        ]
        return m


class RetiredSends(wiring.Component):
    """Counts, for every QP, the work requests that left the completer.

    Members
    -------
    retired: In(QpStrobe), one more; in any cycle.
    select: In(qp); `count` is that of QP `select` one cycle ago.
    """

    def __init__(self, config: RnicConfig):
        self._config = config
        super().__init__(
            {
                "retired": In(QpStrobe(config)),
                "select": In(config.qp_bits),
                "count": Out(sends_bits(config)),
            }
        )

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        m.submodules.counts = counts = Memory(
            shape=sends_bits(self._config), depth=self._config.qps, init=[]
        )
        write_port = counts.write_port()
        # Transparent, so that strobes in two cycles that follow each other both count.
        old = counts.read_port(transparent_for=[write_port])
        selected = counts.read_port()
        pending = Signal()
        pending_qp = Signal(self._config.qp_bits)
        m.d.sync += [pending.eq(self.retired.valid), pending_qp.eq(self.retired.qp)]
        m.d.comb += [
            old.addr.eq(self.retired.qp),
            write_port.addr.eq(pending_qp),
            write_port.data.eq(old.data + 1),
            write_port.en.eq(pending),
            selected.addr.eq(self.select),
            self.count.eq(selected.data),
        ]
        return m
