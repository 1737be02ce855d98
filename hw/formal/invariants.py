"""What holds inside blocks in every cycle, which their proofs and those of the blocks around use.

Each function gets a look inside a block of its class and yields names and conditions. They are
asserted together with the property that needs them, so they are proved whenever they are used.
"""

from collections.abc import Callable, Iterator
from typing import Any

from amaranth.hdl import Mux, Signal, Value

from stagecoach.gateware.queues.entry_writer import ENTRY_WORDS, OUTSTANDING
from stagecoach.gateware.queues.fetch.visit import Visit
from stagecoach.gateware.rdmap.transmit.check import RIGHTS_BITS
from stagecoach.gateware.registers.block import _is_message
from stagecoach.gateware.registers.commands import staging_registers
from stagecoach.gateware.tcp import commands as network_commands
from stagecoach.gateware.tcp.transmit_plan import TO_DO
from stagecoach.gateware.tcp.transmit_turn import TransmitKind
from stagecoach.hw.formal import receiver
from stagecoach.hw.formal.device import class_name
from stagecoach.hw.formal.harness import Harness, Inside

Conditions = Iterator[tuple[str, Any]]


def pending_writes(h: Harness, inside: Inside) -> Any:
    """How many commands of a client of the write engine it took and did not end."""
    if "pending" not in inside.notes:
        write = inside.ports.write
        pending = Signal(16, name="pending")
        begins = write.command.valid & write.command.ready
        h.m.d.sync += pending.eq(pending + begins - write.done)
        inside.notes["pending"] = pending
    return inside.notes["pending"]


def _stream_buffer(h: Harness, inside: Inside) -> Conditions:
    o = inside.ports.o
    spare_full = inside.signal("spare_full")
    yield "vacant", inside.signal("vacant") == ~o.valid
    yield "spare empty", inside.signal("spare_empty") == ~spare_full
    yield "spare behind", ~spare_full | o.valid


def _prompt_fifo(h: Harness, inside: Inside) -> Conditions:
    o, level = inside.ports.o, inside.ports.level
    yield "vacant", inside.signal("vacant") == ~o.valid
    yield "empty", inside.signal("empty") == (level == 0)
    yield "full", inside.signal("full") == (level == inside.ports._rest)
    yield "level", level <= inside.ports._rest
    yield "behind", (level == 0) | o.valid


def _register_block(h: Harness, inside: Inside) -> Conditions:
    address = inside.signal("address", 0)
    decoded = inside.in_state("STORE", "MESSAGE", fsm="write")
    for register in inside.ports._registers:
        if _is_message(register):
            name = register.name.lower()
            hit = inside.signal(f"address_is_{name}")
            yield f"{name} decoded", ~decoded | (hit == (address == register.address))
            port = getattr(inside.ports, name)
            waits = inside.in_state("MESSAGE", fsm="write")
            yield f"{name} waits", ~port.valid | (waits & hit)


def _qp_states(h: Harness, inside: Inside) -> Conditions:
    event, termination = inside.ports.event, inside.ports.termination
    yield "event", ~event.valid | inside.in_state("ALLOWED", "TERMINATION", "TELL")
    yield "termination", ~termination.valid | inside.in_state("TELL")


def _entry_writer(h: Harness, inside: Inside) -> Conditions:
    command = inside.ports.write.command
    left, free = inside.signal("words_left"), inside.signal("free")
    commanded, first = inside.signal("commanded"), inside.signal("first")
    yield "commanded", commanded == ~command.valid
    yield "free", free == (left == 0)
    yield "words", left <= ENTRY_WORDS
    yield "no word before its command", ~free | commanded
    yield "first", ~first | (left == ENTRY_WORDS)
    # As many tags as responses, those on their way, and those to come
    tags, responses = inside.child("tags"), inside.child("responses")
    taken, outstanding = inside.signal("taken"), inside.signal("outstanding")
    held, answered = tags.ports.level, responses.ports.level
    answers = responses.ports.w_en
    to_come = pending_writes(h, inside)
    yield "taken", ~taken | (command.valid & ~free)
    yield "tags", held + taken == answered + answers + to_come + command.valid
    yield "outstanding", (outstanding == held) & (outstanding + taken <= OUTSTANDING)
    yield "room", ~inside.ports.room | (outstanding + taken < OUTSTANDING)
    for name, fifo in (("tags", tags), ("responses", responses)):
        yield f"{name} level", fifo.signal("inner_level") < OUTSTANDING
    late = ~tags.ports.r_rdy & (held != 0)
    yield "tag first", ~late | ((held == 1) & (answered == 0) & ~answers)


def _has_room(entry_writer: Inside) -> Any:
    """Room for one entry more."""
    outstanding = entry_writer.signal("outstanding")
    return outstanding + entry_writer.signal("taken") < OUTSTANDING


def _ring_writer(h: Harness, inside: Inside) -> Conditions:
    goes = inside.in_state("TAKE", "LATCH", "COMPARE", "ISSUE")
    writer = inside.child("writer")
    yield "room", ~goes | _has_room(writer)
    yield "to come", pending_writes(h, inside) == pending_writes(h, writer)


def _placer(h: Harness, inside: Inside) -> Conditions:
    command = inside.ports.write.command
    yield "command free", inside.signal("command_free") == ~command.valid


def _send_completer(h: Harness, inside: Inside) -> Conditions:
    yield "completion", ~inside.ports.completion.valid | inside.in_state("RETIRE")


def _transmit_processor(h: Harness, inside: Inside) -> Conditions:
    """An event waits at its port while it is worked on; only two kinds have octets."""
    away = inside.in_state("FETCH")
    event = inside.child("turn").ports.o
    kind = Value.cast(event.p.kind)
    is_fpdu = kind == Value.cast(TransmitKind.FPDU)
    is_command = kind == Value.cast(TransmitKind.COMMAND)
    yield "event", away | event.valid
    offered = inside.child("turn").signal("offered")
    yield "offered", offered == Mux(event.valid, 1 << kind, 0)
    yield "FPDU", ~event.valid | ~is_fpdu | inside.ports.fpdu.valid
    yield "command", ~event.valid | ~is_command | inside.ports.command.valid
    yield "is FPDU", away | (inside.signal("is_fpdu") == is_fpdu)
    yield "of FPDU", away | (inside.child("plan").signal("of_fpdu") == is_fpdu)
    yield "stores", ~inside.in_state("STORE") | is_fpdu | is_command
    yield "fate", ~inside.in_state("FATE") | is_fpdu
    yield "fated", away | inside.signal("fated") | is_fpdu
    yield "drops", away | ~inside.view("to_do", TO_DO).drops | is_fpdu


def _raw_transmit(h: Harness, inside: Inside) -> Conditions:
    sends = inside.in_state("SEND")
    yield (
        "words leave while it sends",
        sends | ~(inside.ports.frame.valid | inside.signal("fetched")),
    )


def _octet_buffer(h: Harness, inside: Inside) -> Conditions:
    yield "fetching", ~(inside.signal("fetching") & inside.ports.o.valid)


def _invalidation_gate(h: Harness, inside: Inside) -> Conditions:
    yield "report", inside.in_state("IDLE") | inside.child("buffer").ports.o.valid


def _ring_fetcher(h: Harness, inside: Inside) -> Conditions:
    yield "every word is taken", inside.ports.read.data.ready


def _fetch_choose(h: Harness, inside: Inside) -> Conditions:
    """A command is there until it is done."""
    yield "command", ~inside.in_state("COMMAND") | inside.ports.qp_command.valid


def _fetch_lookup(h: Harness, inside: Inside) -> Conditions:
    """A visit is there until it is over."""
    yield "visit", inside.in_state("LOOK_UP") | inside.ports.visit.valid


def _fetch_doorbell(h: Harness, inside: Inside) -> Conditions:
    """A doorbell is there until it is done with."""
    i = inside.ports.i
    rings = i.valid & (i.p.kind == Visit.DOORBELL)
    yield "doorbell", inside.in_state("PASS") | rings


def _fetch_plan(h: Harness, inside: Inside) -> Conditions:
    """What was found is there until it is done with."""
    yield "found", inside.in_state("PLAN") | inside.ports.found.valid


def _fetch_request(h: Harness, inside: Inside) -> Conditions:
    """A read is taken when no command waits."""
    yield "command", ~inside.ports.may_fetch | ~inside.ports.command.valid


def _transmit_choose(h: Harness, inside: Inside) -> Conditions:
    """A command is there until it is done."""
    yield "command", ~inside.in_state("COMMAND") | inside.ports.qp_command.valid


def _transmit_cut(h: Harness, inside: Inside) -> Conditions:
    """A message is there until it is done with, and only one with elements is walked."""
    message = inside.ports.message
    yield "message", inside.in_state("RANGE") | (message.valid & ~message.p.bare)


def _transmit_check(h: Harness, inside: Inside) -> Conditions:
    """A piece is there until it is done with, and whether its rights exist is known before."""
    piece = inside.ports.piece
    yield "piece", inside.in_state("READY") | piece.valid
    misses = piece.p.message.registers & piece.p.element_stag[RIGHTS_BITS:].any()
    known = ~inside.in_state("CHANGE") | (inside.signal("no_rights") == misses)
    yield "no rights", known


def _transmit_command(h: Harness, inside: Inside) -> Conditions:
    yield "command", inside.in_state("CONTEXT") | inside.ports.command.valid


def _transmitter_inside(h: Harness, inside: Inside) -> Conditions:
    """The PD of the QP goes from its memory through two registers."""
    contexts, choose = inside.child("contexts"), inside.child("choose")
    stored = h.word(contexts.memory("pds"), contexts.ports.qp)
    new_qp = choose.in_state("IDLE", "ADDRESS", "TERMINATE_CONTEXT", "COMMAND")
    read = choose.in_state("CONTEXT", "TERMINATE_LOAD")
    yield "PD read", new_qp | (contexts.ports.pd == stored)
    yield "PD", new_qp | read | (inside.child("check").ports.lookup.pd == stored)


def _pending(h: Harness, inside: Inside) -> Conditions:
    """An item is fetched when none waits to be taken."""
    yield "free", inside.in_state("FORGET", "TAKE") | ~inside.ports.o.valid


def _driver_notices(h: Harness, inside: Inside) -> Conditions:
    """A notice is composed when none waits to be taken."""
    yield "free", ~inside.in_state("COMPOSE") | ~inside.ports.o.valid


def _atomic_accept(h: Harness, inside: Inside) -> Conditions:
    command, recall = inside.ports.command, inside.child("addresses").ports.recall
    yield "idle", inside.signal("idle") == inside.in_state("IDLE")
    yield "again", inside.ports.again == inside.in_state("RECALL", "RECALLED", "AGAIN")
    yield "asks", ~command.valid | inside.in_state("SEARCH", "READ", "AGAIN")
    yield "recalls", ~recall | inside.in_state("RECALLED")


def _atomic_compute(h: Harness, inside: Inside) -> Conditions:
    ports = inside.ports
    writes = ports.command.valid | ports.data.valid
    yield "begins", ~ports.write_begins | inside.in_state("COMPUTED")
    yield "writes", ~writes | inside.in_state("WRITE")


INVARIANTS: dict[str, Callable[[Harness, Inside], Conditions]] = {
    "tcp.driver_notices.DriverNotices": _driver_notices,
    "tcp.pending.Pending": _pending,
    "tcp.transmit_processor.TransmitProcessor": _transmit_processor,
    "ethernet.raw_transmit.RawTransmit": _raw_transmit,
    "stream.buffer.StreamBuffer": _stream_buffer,
    "stream.prompt_fifo.PromptFifo": _prompt_fifo,
    "registers.block.RegisterBlock": _register_block,
    "queues.qp_states.QpStates": _qp_states,
    "queues.entry_writer.EntryWriter": _entry_writer,
    "queues.ring_writer.RingWriter": _ring_writer,
    "dma.placer.Placer": _placer,
    "rdmap.atomic.accept.AtomicAccept": _atomic_accept,
    "rdmap.atomic.compute.AtomicCompute": _atomic_compute,
    "queues.completer.SendCompleter": _send_completer,
    "queues.invalidation_gate.InvalidationGate": _invalidation_gate,
    "queues.ring_fetcher.RingFetcher": _ring_fetcher,
    "queues.fetch.choose.FetchChoose": _fetch_choose,
    "queues.fetch.lookup.FetchLookup": _fetch_lookup,
    "queues.fetch.doorbell.FetchDoorbell": _fetch_doorbell,
    "queues.fetch.plan.FetchPlan": _fetch_plan,
    "queues.fetch.request.FetchRequest": _fetch_request,
    "rdmap.receive.access.ReceiveAccess": receiver.access,
    "rdmap.receive.judge.ReceiveJudge": receiver.judge_steps,
    "rdmap.transmit.choose.TransmitChoose": _transmit_choose,
    "rdmap.transmit.cut.TransmitCut": _transmit_cut,
    "rdmap.transmit.check.TransmitCheck": _transmit_check,
    "rdmap.transmit.command.TransmitCommand": _transmit_command,
    "rdmap.transmit.transmitter.Transmitter": _transmitter_inside,
    "hostlink.octets.OctetBuffer": _octet_buffer,
}


def _command_processor(h: Harness, inside: Inside) -> Conditions:
    """The host writes no staging register while COMMAND_STATUS.busy (hw/interface)."""
    ports = inside.ports
    busy = h.past(ports.busy) & ports.busy
    for name in staging_registers():
        register = getattr(ports, name).as_value()
        yield name, ~busy | (register == h.past(register))


def _network_commands(h: Harness, inside: Inside) -> Conditions:
    """The same of NETWORK_COMMAND_STATUS."""
    ports = inside.ports
    busy = h.past(ports.busy) & ports.busy
    for name in network_commands.staging_registers():
        register = getattr(ports, name).as_value()
        yield name, ~busy | (register == h.past(register))


def _network_registers(h: Harness, inside: Inside) -> Conditions:
    """The same, of the host at the register port."""
    yield from _network_commands(h, inside.child("commands"))


def _entry_writer_needs(h: Harness, inside: Inside) -> Conditions:
    """`done` comes for a command that was taken; an entry comes when there is room."""
    ports = inside.ports
    yield "done", ~ports.write.done | (pending_writes(h, inside) != 0)
    yield "room for it", ~(ports.i.valid & ports.i.ready) | _has_room(inside)


def _ring_writer_needs(h: Harness, inside: Inside) -> Conditions:
    """`done` comes for a command that was taken."""
    yield "done", ~inside.ports.write.done | (pending_writes(h, inside) != 0)


def _read_engine(h: Harness, inside: Inside) -> Conditions:
    """Clients without a buffer take every word at once, as `RingFetcher` does."""
    ports = inside.ports
    for number, depth in enumerate(ports._buffer_beats):
        if not depth:
            yield f"client {number}", ports.clients[number].data.ready


def _transmitter(h: Harness, inside: Inside) -> Conditions:
    """The STag table answers once: not while the atomic unit is asked because it has."""
    ports = inside.ports
    yield "answer", ~(ports.stag.response_valid & ports.atomic_request.valid)


def _transmit_issue_needs(h: Harness, inside: Inside) -> Conditions:
    """The same of the part that asks it."""
    yield "answer", ~(inside.ports.response_valid & inside.ports.atomic.valid)


def _transmit_cut_needs(h: Harness, inside: Inside) -> Conditions:
    """What is over is the FPDU of a piece that is taken."""
    piece = inside.ports.piece
    yield "over", ~inside.ports.over | (piece.valid & piece.ready)


def _transmit_check_needs(h: Harness, inside: Inside) -> Conditions:
    """The PD of the QP stands while the STag table is asked for a change."""
    change, pd = inside.ports.change, inside.ports.lookup.pd
    yield "PD", ~h.past(change.valid & ~change.ready) | (pd == h.past(pd))


def llp_holds(h: Harness, llp: Any) -> Conditions:
    """The LLP port, seen from below: a request, and an FPDU, stay until they are taken."""
    for port, fields in (
        ("rx_request", ("connection", "position", "octets")),
        ("tx", ("connection", "data", "octets", "first", "last", "close")),
    ):
        waits = h.past(getattr(llp, f"{port}_valid") & ~getattr(llp, f"{port}_ready"))
        values = [getattr(llp, f"{port}_{name}") for name in fields]
        held = getattr(llp, f"{port}_valid")
        for value in values:
            held &= value == h.past(value)
        yield port, ~waits | held


def _tcp_engine_needs(h: Harness, inside: Inside) -> Conditions:
    """Requests and FPDUs hold."""
    yield from llp_holds(h, inside.ports.llp)


def _atomic_accept_needs(h: Harness, inside: Inside) -> Conditions:
    """The operation that starts over is not settled before its read was taken."""
    ports = inside.ports
    yield "settled after its read", ~(ports.again & ports.settles & ports.command.valid)


NEEDS: dict[str, Callable[[Harness, Inside], Conditions]] = {
    "tcp.engine.TcpEngine": _tcp_engine_needs,
    "registers.commands.CommandProcessor": _command_processor,
    "tcp.commands.NetworkCommands": _network_commands,
    "tcp.network_registers.NetworkRegisters": _network_registers,
    "dma.read.ReadEngine": _read_engine,
    "rdmap.transmit.transmitter.Transmitter": _transmitter,
    "rdmap.transmit.issue.TransmitIssue": _transmit_issue_needs,
    "rdmap.transmit.cut.TransmitCut": _transmit_cut_needs,
    "rdmap.transmit.check.TransmitCheck": _transmit_check_needs,
    "queues.entry_writer.EntryWriter": _entry_writer_needs,
    "queues.ring_writer.RingWriter": _ring_writer_needs,
    "rdmap.atomic.accept.AtomicAccept": _atomic_accept_needs,
    "rdmap.receive.access.ReceiveAccess": receiver.access_needs,
    "rdmap.receive.header.ReceiveHeader": receiver.judge_header_needs,
}
"""What a block needs of its inputs besides the rules of streams: assumed where it stands alone,
asserted where it is a part of another block."""


def needs(h: Harness, name: str, inside: Inside) -> Conditions:
    """The conditions that a block of the class `name` needs."""
    return NEEDS[name](h, inside) if name in NEEDS else iter(())


def invariants(h: Harness, name: str, inside: Inside, path: str = "") -> None:
    """Assert what is known of a block of the class `name` and of all blocks inside it."""
    for machine in inside.machines():
        h.invariant(f"{path}{machine} legal", inside.legal_state(machine))
    if name in INVARIANTS:
        for what, condition in INVARIANTS[name](h, inside):
            h.invariant(f"{path}{what}", Value.cast(condition))
    for part_name, part in list(inside.children()):
        invariants(h, class_name(part.ports), part, f"{path}{part_name}.")
