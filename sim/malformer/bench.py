"""Runs malformed streams against one compiled device: many QPs at a time, a new one for each."""

import itertools
import random
import select
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from stagecoach.host_driver import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    WC,
    AccessFlags,
    Context,
    QPCap,
    QPInitAttr,
    QPState,
    RecvWR,
    SendWR,
    WCStatus,
    WROpcode,
)
from stagecoach.host_driver.transport.sockets import SocketStream
from stagecoach.sim.disturbed import DisturbedDevice
from stagecoach.sim.malformer.case import Case
from stagecoach.sim.malformer.compare import Observed
from stagecoach.sim.malformer.layout import LANES, OWN_PD, Layout, Place, free_stag, make_layout
from stagecoach.sim.malformer.setting import IRD_MAX, Setting
from stagecoach.sim.model import mpa
from stagecoach.sim.model.endpoint import Endpoint
from stagecoach.sim.model.errors import StreamError
from stagecoach.sim.model.memory import Rights
from stagecoach.sim.model.peer import Peer
from stagecoach.sim.model.predict import Scope
from stagecoach.sim.model.startup import StartupFrame

PATIENCE = 20.0
"""Seconds after which a stream counts as hanging, if this process had as much of them as it needs.

So many times it looked at the stream in vain: a machine that has other things to do is no hang.
"""

_BYSTANDER_SECONDS = 200.0

_PATIENCE_FOR_ERROR = 1.0
"""Seconds after which the peer closes its half if no error came where one is predicted."""

_PAUSE_SHARE = 0.3
_LONGEST_PAUSE_LOG2 = 10
"""Of cycles; most are much shorter."""

_ARENA_OCTETS = 16384
_GAP_OCTETS = 5
_ARENA_FILL = b"\xa5"
_READ_OCTETS = 1 << 16
_IDLE_SECONDS = 0.0005
_ACCESS = {
    Rights.LOCAL_WRITE: AccessFlags.LOCAL_WRITE,
    Rights.REMOTE_READ: AccessFlags.REMOTE_READ,
    Rights.REMOTE_WRITE: AccessFlags.REMOTE_WRITE,
}


def _access(rights: Rights) -> AccessFlags:
    found = AccessFlags(0)
    for right, flag in _ACCESS.items():
        if right in rights:
            found |= flag
    return found


class _Arena:
    """The memory of the receives of a lane, with bytes between them that nobody may change."""

    def __init__(self, pd: PD, stag: int):
        self.buffer = bytearray(_ARENA_FILL * _ARENA_OCTETS)
        self.mr = MR(pd, self.buffer, AccessFlags.LOCAL_WRITE, stag=stag)
        self._elements: list[list[tuple[int, int]]] = []

    def requests(self, setting: Setting) -> list[RecvWR]:
        """The receives of a setting."""
        self._elements = []
        at = _GAP_OCTETS
        for lengths in setting.receives:
            elements = []
            for length in lengths:
                elements.append((at, length))
                self.buffer[at : at + length] = bytes(length)
                at += length + _GAP_OCTETS
            self._elements.append(elements)
        return [
            RecvWR(number, [SGE(self.mr.addr + at, n, self.mr.lkey) for at, n in elements])
            for number, elements in enumerate(self._elements)
        ]

    def take(self) -> tuple[list[bytes], bool]:
        """What is in the receives, and whether the rest is untouched."""
        contents = []
        buffer = self.buffer
        for elements in self._elements:
            contents.append(b"".join(buffer[at : at + length] for at, length in elements))
            for at, length in elements:
                buffer[at : at + length] = _ARENA_FILL * length
        untouched = buffer == _ARENA_FILL * _ARENA_OCTETS
        if not untouched:
            buffer[:] = _ARENA_FILL * _ARENA_OCTETS
        return contents, untouched


class _Run:
    """One stream on its way: sends the bytes, takes what the QP sends."""

    def __init__(self, lane: "_Lane", case: Case):
        self.case = case
        self.completions: list[WC] = []
        self._lane = lane
        self._setting = setting = case.setting
        self._ulpdus: list[bytes] = []
        self._ended = False
        self._shut = False
        self._deframer = mpa.Deframer(setting.markers_out, setting.crc)
        self._start = time.monotonic()
        self._looks = 0
        self._late = False
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        cap = QPCap(max(1, len(setting.reads)), max(1, len(setting.receives)))
        self.qp = QP(lane.pd, QPInitAttr(lane.cq, lane.cq, cap, rfc7306=setting.rfc7306))
        if setting.own:
            lane.register("own", lane.pd, self.qp)
        if setting.receives:
            self.qp.post_recv(*lane.arena.requests(setting))
        self.qp.connect(
            SocketStream(theirs),
            initiator=setting.initiator,
            crc=setting.crc,
            ord=IRD_MAX,
            ird=setting.ird,
            emss=setting.emss,
            markers_tx=setting.markers_out,
            markers_rx=setting.markers_in,
        )
        for number, (offset, octets) in enumerate(setting.reads):
            sink = lane.regions["sink"]
            element = SGE(sink.addr + offset, octets, sink.lkey)
            self.qp.post_send(SendWR(number, WROpcode.RDMA_READ, [element], rkey=1))
        stream = case.octets
        size = -(-len(stream) // setting.pieces) or 1
        self._rest = [stream[at : at + size] for at in range(0, len(stream), size)]

    def step(self) -> bool:
        """Goes on as far as possible; whether it is done."""
        self._looks += 1
        self._receive()
        if len(self._ulpdus) < len(self._setting.reads) and not self._stopped:
            # Read Responses must not be there before the Read Requests.
            self._late = self._is_late()
            return self._late
        if self._rest and not self._ended:
            self._send()
        if not self._shut and not self._rest and self._may_shut():
            self._shut = True
            self.socket.shutdown(socket.SHUT_WR)
        if self._stopped and self._ended:
            return True
        self._late = self._is_late()
        return self._late

    def _is_late(self) -> bool:
        return self._age > PATIENCE and self._looks * _IDLE_SECONDS > PATIENCE

    @property
    def _age(self) -> float:
        return time.monotonic() - self._start

    @property
    def _stopped(self) -> bool:
        return self.qp.state == QPState.ERR

    def _may_shut(self) -> bool:
        if self._setting.half_close:
            return True
        prediction = self.case.prediction
        if prediction.error is not None or prediction.terminate_received is not None:
            return self._age > _PATIENCE_FOR_ERROR
        return len(self._ulpdus) >= len(self._setting.reads) + len(prediction.ulpdus)

    def _send(self) -> None:
        try:
            sent = self.socket.send(self._rest[0])
        except BlockingIOError:
            return
        except ConnectionError:
            self._rest.clear()
            return
        self._rest[0] = self._rest[0][sent:]
        if not self._rest[0]:
            del self._rest[0]

    def _receive(self) -> None:
        if self._ended:
            return
        try:
            octets = self.socket.recv(_READ_OCTETS)
        except BlockingIOError:
            return
        except ConnectionError:
            octets = b""
        self._ended = not octets
        try:
            self._ulpdus += self._deframer.feed(octets)
        except StreamError as error:
            self._ulpdus.append(f"no FPDU: {error}".encode())

    def finish(self) -> Observed:
        """What the device did; the lane is free again."""
        lane = self._lane
        found = [event for event in lane.context.events if event.qp_num == self.qp.qp_num]
        lane.context.events[:] = [
            event for event in lane.context.events if event.qp_num != self.qp.qp_num
        ]
        self.qp.close()
        lane.poll()
        self.socket.close()
        memory = lane.take_memory(self._setting)
        receives, beside = lane.arena.take()
        return Observed(
            event=found[0] if len(found) == 1 else None,
            ulpdus=self._ulpdus[len(self._setting.reads) :],
            ended=self._ended,
            memory=memory,
            receives=receives,
            beside=beside,
            completions=self.completions,
            late=self._late,
            requests=tuple(self._ulpdus[: len(self._setting.reads)]),
        )


class _Lane:
    """The regions of one lane, and the stream that uses them."""

    def __init__(self, bench: "Bench", layout: Layout):
        self.context, self.cq = bench.context, bench.cq
        self.layout = layout
        self.run: _Run | None = None
        self.poll = bench.poll
        self.pd = PD(self.context)
        # The owner of the region `other stream`.
        self._stranger = QP(self.pd, QPInitAttr(self.cq, self.cq, QPCap(1, 1)))
        self.regions: dict[str, MR] = {}
        self.buffers = {name: bytearray(octets) for name, octets in layout.contents.items()}
        for name, place in layout.places.items():
            pd = self.pd if place.pd == OWN_PD else bench.other_pd
            if place.scope is not Scope.THIS:
                self.register(name, pd, self._stranger if place.scope is Scope.OTHER else None)
        self.arena = _Arena(self.pd, free_stag(layout.lane))

    def register(self, name: str, pd: PD, qp: QP | None) -> None:
        """Registers a region."""
        place: Place = self.layout[name]
        self.regions[name] = MR(
            pd, self.buffers[name], _access(place.rights), qp=qp, addr=place.base, stag=place.stag
        )

    def take_memory(self, setting: Setting) -> dict[str, bytes]:
        """The content of the regions, which are then as at the start."""
        found = {}
        for name in setting.names(self.layout):
            buffer, original = self.buffers[name], self.layout.contents[name]
            found[name] = original
            if buffer != original:
                found[name] = bytes(buffer)
                buffer[:] = original
        return found


class Bystander:
    """A QP of the same device with a peer that does nothing wrong."""

    def __init__(self, context: Context, seed: int):
        self._seed = seed
        self._count = 0
        self._pd, self._cq = PD(context), CQ(context)
        self.qp = QP(self._pd, QPInitAttr(self._cq, self._cq, QPCap(4, 4)))
        self._buffer = bytearray(4096)
        self._mr = MR(self._pd, self._buffer, _access(Rights.ALL), stag=free_stag(LANES))
        ours, theirs = socket.socketpair()
        self.qp.connect(
            SocketStream(theirs), initiator=True, crc=True, ord=IRD_MAX, ird=IRD_MAX, emss=1460
        )
        frames = [StartupFrame(reply=reply) for reply in (False, True)]
        self._endpoint = Endpoint(seed=seed)
        self._peer = Peer(ours, self._endpoint, request=frames[0], reply=frames[1])
        self._sink = bytearray(2000)
        self._stag = self._endpoint.register(self._sink).stag

    def check(self) -> None:
        """A Write, a Send and a Read to the QP, and a Read by it: all goes well."""
        self._count += 1
        octets = bytes((self._count + at) % 251 for at in range(2000))
        receive = SGE(self._mr.addr + 2000, 2000, self._mr.lkey)
        self.qp.post_recv(RecvWR(1, [receive]))
        end, mr = self._endpoint, self._mr
        end.rdma_write(octets, mr.rkey, mr.addr, 1)
        end.post_send(octets[::-1], 2)
        end.rdma_read(self._stag, 0, 2000, mr.rkey, mr.addr, 3)
        self._peer.wait(3, _BYSTANDER_SECONDS)
        assert self._sink == octets, "the bystander has read something else than it has written"
        assert self._buffer[2000:4000] == octets[::-1], "a Send of the bystander is not whole"
        sink = SGE(mr.addr + 100, 1500, mr.lkey)
        request = SendWR(4, WROpcode.RDMA_READ, [sink], remote_addr=0, rkey=self._stag)
        self.qp.post_send(request)
        found: list[WC] = []

        def done() -> bool:
            self._peer.pump(0.0005)
            found.extend(self._cq.poll())
            return len(found) >= 2

        deadline = time.monotonic() + _BYSTANDER_SECONDS
        while not done():
            assert time.monotonic() < deadline, "the bystander does not get on"
        assert {(wc.wr_id, wc.status) for wc in found} == {
            (1, WCStatus.SUCCESS),
            (4, WCStatus.SUCCESS),
        }, f"completions of the bystander: {found}"
        assert self._buffer[100:1600] == octets[:1500], "a read of the bystander is not whole"

    def close(self) -> None:
        """Ends its connection."""
        self.qp.close()
        self._peer.close()


class Bench:
    """An open device with lanes of regions, for the cases of one seed.

    Parameters
    ----------
    seed: decides the STags and Tagged Offsets of the regions. lanes: which there are.
    library: a built device; it is built if not given. late_writes: see `SimulatedDevice`.
    pauses: if given, decides when the LLP and host memory pause, and for how long.
    """

    def __init__(
        self,
        seed: int,
        *,
        lanes: Iterable[int] = range(LANES),
        library: Path | None = None,
        late_writes: bool = False,
        pauses: random.Random | None = None,
    ):
        self._pauses = pauses
        with ExitStack() as undo:
            self.device = DisturbedDevice(library=library, late_writes=late_writes)
            self.context = undo.enter_context(Context(self.device))
            self.cq = CQ(self.context, 4096)
            self.other_pd = PD(self.context)
            self._runs: dict[int, _Run] = {}
            layouts = [make_layout(seed, lane) for lane in lanes]
            self._lanes = {layout.lane: _Lane(self, layout) for layout in layouts}
            self.bystander = Bystander(self.context, seed)
            undo.callback(self.bystander.close)
            self._undo = undo.pop_all()

    def poll(self) -> None:
        """Gives the completions that came to the streams whose they are."""
        while found := self.cq.poll(256):
            for wc in found:
                if wc.qp_num in self._runs:
                    self._runs[wc.qp_num].completions.append(wc)

    def _pause(self, rng: random.Random) -> None:
        """Holds some of the ports for a while."""
        reads, writes, transmit = (rng.random() < 0.5 for _ in range(3))
        self.device.hold(reads=reads, writes=writes, transmit=transmit)
        self.device.run_cycles(int(2 ** rng.uniform(0, _LONGEST_PAUSE_LOG2)))
        self.device.hold()

    def run(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Observed]]:
        """Runs the cases; they come back in the order in which they end."""
        waiting: dict[int, list[Case]] = {lane: [] for lane in self._lanes}
        source = iter(cases)
        left = True
        while left or self._runs or any(waiting.values()):
            moved = False
            if left and not any(waiting.values()):
                # Many at once: the device would go on with nothing to do after each.
                batch = list(itertools.islice(source, len(waiting)))
                left = bool(batch)
                for case in batch:
                    _ = case.octets, case.prediction
                    waiting[case.lane].append(case)
            for number, lane in self._lanes.items():
                if lane.run is None and waiting[number]:
                    lane.run = _Run(lane, waiting[number].pop(0))
                    self._runs[lane.run.qp.qp_num] = lane.run
                    moved = True
            if self._pauses is not None and self._pauses.random() < _PAUSE_SHARE:
                self._pause(self._pauses)
            self.context.clear_interrupts()
            self.context.process_events()
            for lane in self._lanes.values():
                if lane.run is not None and lane.run.step():
                    run, lane.run = lane.run, None
                    observed = run.finish()
                    del self._runs[run.qp.qp_num]
                    moved = True
                    yield run.case, observed
            if not moved:
                sockets = [run.socket for run in self._runs.values()]
                select.select(sockets, [], [], _IDLE_SECONDS)

    def close(self) -> None:
        """Ends the device, and the streams that are not done."""
        for run in self._runs.values():
            run.socket.close()
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
