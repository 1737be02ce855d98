"""What was decoded in words: one line per startup frame, FPDU or remark."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from stagecoach.sim.capture import rpc_words
from stagecoach.sim.capture.decode import Decoded, Item, Place, SeenFpdu, Startup
from stagecoach.sim.model import rdmap, words
from stagecoach.sim.model.direction import Direction
from stagecoach.sim.model.observation import Observation, Problem
from stagecoach.sim.model.rdmap import Form, Opcode
from stagecoach.sim.model.startup import DEPTH_NOT_NEGOTIATED, EnhancedData, StartupFrame

_ARROWS = {Direction.TO_RESPONDER: "→", Direction.TO_INITIATOR: "←"}
_STYLES: dict[int, str] = {
    **{int(opcode): "yellow" for opcode in rdmap.SEND_OPCODES},
    int(Opcode.RDMA_WRITE): "green",
    int(Opcode.RDMA_READ_REQUEST): "cyan",
    int(Opcode.RDMA_READ_RESPONSE): "cyan",
    **{int(opcode): "yellow" for opcode in rdmap.IMMEDIATE_OPCODES},
    int(Opcode.ATOMIC_REQUEST): "blue",
    int(Opcode.ATOMIC_RESPONSE): "blue",
    int(Opcode.TERMINATE): "bold red",
}
# All but the longest names.
_MESSAGE_WIDTH = len("Send with Invalidate")
_ASCII = str.maketrans({"→": ">", "←": "<", "✗": "!"})


def ascii_only(text: Text) -> Text:
    """The same line for a terminal without Unicode; every character is as wide."""
    plain = text.copy()
    plain.plain = text.plain.translate(_ASCII)
    return plain


def lines(decoded: Decoded) -> Iterator[Text]:
    """The lines to print; the first item of each connection has one for its addresses before it."""
    seen: set[int] = set()
    for item in decoded.items:
        if item.place.connection not in seen:
            seen.add(item.place.connection)
            yield _connection(item.place)
        yield _line(item, decoded.start_ns)
    if decoded.others:
        are = "connection does" if decoded.others == 1 else "connections do"
        yield Text(f"{decoded.others} other TCP {are} not start with MPA", "dim")


def summary(items: Sequence[Item], shown: Sequence[Item]) -> Text:
    """One line at the end: how many FPDUs, and what is wrong with how many items.

    `shown`: those that were printed, if not all were.
    """
    fpdus = sum(isinstance(item, SeenFpdu) for item in items)
    connections = len({item.place.connection for item in items})
    wrong = [len(item.problems) for item in items if item.problems]
    text = Text(f"{_count(fpdus, 'FPDU')} in {_count(connections, 'connection')}, ", "bold")
    if wrong:
        where = "" if len(wrong) == sum(wrong) else f" in {_count(len(wrong), 'item')}"
        text.append(f"{_count(sum(wrong), 'problem')}{where}", "bold red")
    else:
        text.append("no problem", "green")
    if len(shown) != len(items):
        text.append(f"; {len(shown):,} of {_count(len(items), 'item')} shown", "dim")
    return text


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _connection(place: Place) -> Text:
    # What comes first is sent by the initiator.
    source, destination = ("{}:{}".format(*end) for end in (place.source, place.destination))
    return Text(f"connection {place.connection}: {source} → {destination}", "bold")


def _line(item: Item, start_ns: int) -> Text:
    place = item.place
    text = Text(no_wrap=True)
    seconds = (place.time_ns - start_ns) / 1e9
    text.append(f"{place.packet:6} {seconds:11.6f} ", "dim")
    text.append(f"{place.connection}{_ARROWS[place.direction]} ", "bold")
    if isinstance(item, Startup):
        _add_startup(text, item)
    elif isinstance(item, SeenFpdu):
        _add_fpdu(text, item.observation)
        if item.rpc is not None:
            text.append("".join(f", {each}" for each in rpc_words.words(item.rpc)), "yellow")
    for problem in item.problems:
        _add_problem(text, problem)
    return text


def _add_startup(text: Text, item: Startup) -> None:
    frame = item.frame
    if frame is None:
        text.append(f"{'MPA startup':{_MESSAGE_WIDTH}}  ", "bold red")
        text.append(f"{len(item.octets)} bytes")
        return
    name = "MPA Reply" if frame.reply else "MPA Request"
    text.append(f"{name:{_MESSAGE_WIDTH}}  ", "bold red" if frame.reject else "bold magenta")
    text.append(", ".join(_startup_words(frame)))


def _startup_words(frame: StartupFrame) -> Iterator[str]:
    yield f"revision {frame.revision}"
    if frame.reject:
        yield "rejected"
    yield "Markers wanted" if frame.markers else "no Markers"
    yield "CRC wanted" if frame.crc else "no CRC"
    if frame.enhanced is not None:
        yield from _enhanced_words(frame.enhanced)
    if frame.private_data:
        yield f"{len(frame.private_data)} bytes of private data"
    else:
        yield "no private data"


def _enhanced_words(data: EnhancedData) -> Iterator[str]:
    for name, depth in (("IRD", data.ird), ("ORD", data.ord)):
        yield f"{name} {'not negotiated' if depth == DEPTH_NOT_NEGOTIATED else depth}"
    if data.peer_to_peer:
        offers = (("Send", data.rtr_send), ("Write", data.rtr_write), ("Read", data.rtr_read))
        names = [name for name, offered in offers if offered]
        yield f"peer-to-peer with RTR by {' or '.join(names) or 'nothing'}"


def _add_fpdu(text: Text, seen: Observation) -> None:
    style = _STYLES.get(-1 if seen.opcode is None else seen.opcode, "bold red")
    text.append(f"{seen.message:{_MESSAGE_WIDTH}}  ", f"dim {style}" if seen.dropped else style)
    text.append(", ".join(_fpdu_words(seen)))
    if not seen.crc_in_use:
        text.append(", CRC off", "dim")
    elif seen.fpdu.crc == seen.fpdu.computed_crc:
        text.append(", CRC good", "green")
    else:
        text.append(", CRC bad", "bold red")
    if seen.dropped:
        text.append(", dropped: after an error", "dim")


def _fpdu_words(seen: Observation) -> Iterator[str]:
    if seen.header is None:
        yield f"ULPDU of {len(seen.fpdu.ulpdu)} bytes"
    else:
        yield words.header_words(seen.header)
        if seen.invalidate_stag is not None:
            yield f"invalidates STag {seen.invalidate_stag:#010x}"
        if seen.read_request is not None:
            yield words.read_words(seen.read_request)
        elif seen.atomic_request is not None:
            yield words.atomic_words(seen.atomic_request)
        elif seen.atomic_response is not None:
            yield words.atomic_response_words(seen.atomic_response)
        elif seen.immediate is not None:
            yield f"data {seen.immediate.hex()}"
        elif seen.terminate is not None:
            about = "" if seen.about is None else f" (FPDU {seen.about} of the peer)"
            form = ", in the octet order of Linux siw" if seen.terminate.form is Form.SIW else ""
            yield f"{words.complaint(seen.terminate)}{about}{form}"
        else:
            yield f"{len(seen.payload)} bytes"
    if seen.ready_to_receive:
        yield "RTR frame"
    if seen.fpdu.markers:
        count = len(seen.fpdu.markers)
        yield f"{count} Marker{'s' if count > 1 else ''}"


def _add_problem(text: Text, problem: Problem) -> None:
    text.append(f"  ✗ {problem.detail}", "bold red" if problem.error else "red")
    if problem.error is not None:
        text.append(f": {problem.error}", "red")
    if problem.source:
        text.append(f" ({problem.source})", "red")
