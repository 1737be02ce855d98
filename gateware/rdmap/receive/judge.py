"""Judges received segments by all that needs no STag, one after another.

RFC 5041, 7.1; RFC 5040, 7.2; RFC 7306, 8.2.
"""

from amaranth.hdl import Module, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.config import RnicConfig
from stagecoach.gateware.layouts import Layouts, QpStrobe
from stagecoach.gateware.queues.ports import QpFifoReader, QpFifoWriter, ReceiveEntryPort
from stagecoach.gateware.rdmap.headers import ULPDU_HEADER
from stagecoach.gateware.rdmap.receive.checks import ReceiveChecks
from stagecoach.gateware.rdmap.receive.decode import ReceiveDecode
from stagecoach.gateware.rdmap.receive.following import ReceiveFollowing
from stagecoach.gateware.rdmap.receive.header import ReceiveHeader
from stagecoach.gateware.rdmap.receive.pieces import PIECE_WRITE, ReceivePieces
from stagecoach.gateware.rdmap.receive.record import ReceiveRecord, record_layout
from stagecoach.gateware.rdmap.receive.request import ReceiveRequest
from stagecoach.gateware.rdmap.receive.response import ReceiveResponse
from stagecoach.gateware.rdmap.receive.running import ReceiveRunning
from stagecoach.gateware.rdmap.receive.scan import ENTRY_WORDS
from stagecoach.gateware.rdmap.receive.send import ReceiveSend
from stagecoach.gateware.rdmap.receive.take import ReceiveTake


class ReceiveJudge(wiring.Component):
    """Turns segments into records, in order, and cuts their payload into pieces.

    A record leaves when `record` is ready, and what comes with it happens then: the context of its
    QP goes on, a receive entry or outstanding request that its message ends is popped, and a Read
    or Atomic Request is pushed. That is before its STags are looked up: if one is refused, the QP
    stops, and none of it is looked at again until it is connected anew. A record must be taken
    only when all before it are dealt with; `stop` is then known here, and such a record is
    `dropped`, with no effect.

    A segment is taken in the cycle after the one in which it came, at the earliest. A record comes
    3 cycles after its segment was taken (Write), 5 (Read or Atomic Request), 7 (response), 9 (Send
    of one element, 2 more for each further one), if the receive entry is on chip; the next segment
    is taken in the cycle after it. Nothing is taken while it waits.

    Members
    -------
    qp_command: In(stream): CREATE sets the PD, CONNECT the IRD and whether the messages of RFC 7306
        are taken, and starts MSN and MO anew. Taken while `idle`, two cycles after it came at the
        earliest, one every three cycles.
    segment: In(stream) from the MPA receiver.
    running: In(config.qps), bit n for QP n.
    strict: In(1), the atomics are those of RFC 7306 only.
    receive_entries, inbound_requests, outstanding_requests, read_space: as of the `Receiver`.
    begin: Out(1), a pulse when a segment is taken.
    dropped: Out(1), a pulse for an FPDU that is dropped: its QP does not run.
    idle: In(1), all records before are dealt with.
    stop: In(QpStrobe), a record of the QP failed.
    record: Out(stream of `record_layout`).
    piece: Out, `PIECE_WRITE`; the last one of a record comes in the cycle of the record.
    """

    def __init__(self, config: RnicConfig) -> None:
        self._config = config
        layouts = Layouts(config)
        depth = config.read_queue_depth
        super().__init__(
            {
                "qp_command": In(stream.Signature(layouts.qp_command)),
                "segment": In(stream.Signature(layouts.segment)),
                "running": In(config.qps),
                "strict": In(1),
                "receive_entries": Out(ReceiveEntryPort(config, ENTRY_WORDS)),
                "inbound_requests": Out(QpFifoWriter(config, layouts.inbound_request, depth)),
                "outstanding_requests": Out(
                    QpFifoReader(config, layouts.outstanding_request, depth)
                ),
                "read_space": Out(QpStrobe(config)),
                "begin": Out(1),
                "dropped": Out(1),
                "idle": In(1),
                "stop": In(QpStrobe(config)),
                "record": Out(stream.Signature(record_layout(config))),
                "piece": Out(PIECE_WRITE),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        entries, inbound, outstanding = (
            self.receive_entries,
            self.inbound_requests,
            self.outstanding_requests,
        )

        # The steps of a segment
        m.submodules.take = take = ReceiveTake(config)
        m.submodules.header = header = ReceiveHeader(config)
        m.submodules.send = send = ReceiveSend()
        m.submodules.request = request = ReceiveRequest(config)
        m.submodules.response = response = ReceiveResponse()
        m.submodules.record = record = ReceiveRecord(config)
        # What is known of it and of its QP
        m.submodules.decode = decode = ReceiveDecode(config)
        m.submodules.checks = checks = ReceiveChecks(config)
        m.submodules.pieces = pieces = ReceivePieces(config)
        m.submodules.running = running = ReceiveRunning(config)
        m.submodules.following = following = ReceiveFollowing(config)
        segment, kind = take.work.payload, decode.kind
        ulpdu_header = data.View(ULPDU_HEADER, segment.header)

        wiring.connect(m, wiring.flipped(self.qp_command), take.qp_command)
        wiring.connect(m, wiring.flipped(self.segment), take.segment)
        wiring.connect(m, take.work, header.segment)
        wiring.connect(m, header.send, send.segment)
        wiring.connect(m, header.request, request.segment)
        wiring.connect(m, header.response, response.segment)
        wiring.connect(m, record.record, wiring.flipped(self.record))
        wiring.connect(m, record.read_space, wiring.flipped(self.read_space))
        verdicts = [Value.cast(step.verdict) for step in (header, send, request, response)]
        m.d.comb += [
            take.idle.eq(self.idle),
            self.begin.eq(take.begin),
            self.dropped.eq(record.dropped),
            self.piece.eq(pieces.piece),
            # The steps: one of them judges at a time
            header.over.eq(record.over),
            header.kind.eq(kind),
            header.payload.eq(checks.payload),
            header.failed.eq(checks.header_failed),
            header.cause.eq(checks.header_cause),
            header.drops.eq(running.drops),
            send.cause.eq(checks.send_cause),
            send.other_opcode.eq(checks.other_opcode),
            send.immediate_cause.eq(checks.immediate_cause),
            send.too_long.eq(following.message_end[-1]),
            send.level.eq(entries.level),
            send.failed.eq(entries.failed),
            send.shared.eq(entries.shared),
            send.drops.eq(running.drops),
            send.complete.eq(pieces.complete),
            send.exhausted.eq(pieces.exhausted),
            send.count.eq(pieces.count),
            send.read.eq(pieces.read),
            request.header.eq(ulpdu_header),
            request.read_cause.eq(checks.request_cause),
            request.atomic_cause.eq(checks.atomic_request_cause),
            response.payload.eq(checks.payload),
            response.read_cause.eq(checks.response_cause),
            response.atomic_cause.eq(checks.atomic_response_cause),
            Value.cast(record.verdict).eq(verdicts[0] | verdicts[1] | verdicts[2] | verdicts[3]),
            # What is told
            record.segment.eq(segment),
            record.kind.eq(kind),
            record.position.eq(decode.position),
            record.outstanding.eq(outstanding.head),
            record.message_end.eq(following.message_end),
            record.pd.eq(following.pd),
            record.started.eq(following.started),
            record.entry_index.eq(entries.index),
            record.drops.eq(running.drops),
            record.stopped.eq(running.stopped),
            # What is known
            decode.segment.eq(segment),
            checks.segment.eq(segment),
            checks.context.eq(following.context),
            checks.ird.eq(following.ird),
            checks.rfc7306.eq(following.rfc7306),
            checks.strict.eq(self.strict),
            checks.posted.eq(entries.posted),
            checks.inbound_level.eq(inbound.level),
            checks.outstanding_level.eq(outstanding.level),
            checks.outstanding_head.eq(outstanding.head),
            pieces.header.eq(ulpdu_header),
            pieces.kind.eq(kind),
            pieces.payload.eq(checks.payload),
            pieces.outstanding.eq(outstanding.head),
            pieces.bank.eq(record.bank),
            pieces.restart.eq(~take.work.valid | send.restart),
            pieces.word.eq(entries.word),
            running.running.eq(self.running),
            running.coming.eq(take.coming),
            running.qp.eq(segment.qp),
            running.connect.valid.eq(take.connect),
            running.connect.qp.eq(take.command.qp),
            running.stop.valid.eq(self.stop.valid),
            running.stop.qp.eq(self.stop.qp),
            following.coming.eq(take.coming),
            following.qp.eq(segment.qp),
            following.kind.eq(kind),
            following.payload.eq(checks.payload),
            following.response_octets.eq(checks.response_octets),
            following.command.eq(take.command),
            following.connect.eq(take.connect),
            following.create.eq(take.create),
            following.leaving.eq(record.leaving),
            # The queues of the QP: what they say is right two cycles after the segment was taken.
            entries.arriving.eq(take.arriving),
            entries.stays.eq(take.stays),
            entries.select.eq(segment.qp),
            entries.word_address.eq(pieces.word_address),
            entries.pop.eq(record.pop_entry),
            entries.popping.eq(record.popping_entry),
            entries.keep.eq(record.keep_entry),
            inbound.select.eq(take.qp),
            inbound.item.eq(request.item),
            inbound.push_qp.eq(take.qp),
            inbound.push.eq(record.push),
            outstanding.select.eq(take.qp),
            outstanding.pop_qp.eq(take.qp),
            outstanding.pop.eq(record.pop),
        ]
        return m
