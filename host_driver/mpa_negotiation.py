"""What the two ends of an MPA connection agree on (RFC 5044 7.1; RFC 6581 6, 9 and 10)."""

from stagecoach.host_driver.mpa_errors import InsufficientIRD, MalformedFrame, NoMatchingRTR
from stagecoach.host_driver.mpa_startup import (
    ENHANCED_REVISION,
    NO_RTR,
    NOT_NEGOTIATED,
    PLAIN_REVISION,
    RTR,
    StartupFrame,
)
from stagecoach.host_driver.mpa_terms import DEFAULT_RTR, Connection, Terms

_RTR_PREFERENCE = (RTR.WRITE, RTR.READ, RTR.SEND)


def told_reads(value: int | None) -> int | None:
    """An IRD or ORD of a frame; `None` if it has none or leaves it to the ULP (RFC 6581, 9.1)."""
    return None if value == NOT_NEGOTIATED else value


def limit_reads(own: int, peers: int | None) -> int:
    """The own ORD, or the peer's IRD if it told a smaller one (RFC 6581, 9.1)."""
    told = told_reads(peers)
    return own if told is None else min(own, told)


def require_revision(revision: int, *, peer_to_peer: bool) -> None:
    """Raises `ValueError` if there is no such revision, or none with peer-to-peer connections."""
    if revision not in (PLAIN_REVISION, ENHANCED_REVISION):
        raise ValueError(
            f"MPA revision {revision}; allowed: {PLAIN_REVISION} or {ENHANCED_REVISION}"
        )
    if peer_to_peer and revision != ENHANCED_REVISION:
        raise ValueError(
            f"peer_to_peer with MPA revision {revision}; allowed: with {ENHANCED_REVISION}"
        )


# Initiator


def request_frame(
    terms: Terms, *, revision: int, negotiate_reads: bool, peer_to_peer: bool
) -> StartupFrame:
    """The Request; revision 1 is that of RFC 5044, without what RFC 6581 added.

    It is also the one of a Request that wants nothing of RFC 6581 (RFC 6581, 6 and 10).
    """
    require_revision(revision, peer_to_peer=peer_to_peer)
    if revision == ENHANCED_REVISION and not negotiate_reads and not peer_to_peer:
        revision = PLAIN_REVISION
    reads: tuple[int, int] | tuple[None, None]
    if revision == ENHANCED_REVISION:
        reads = (terms.ird, terms.ord) if negotiate_reads else (NOT_NEGOTIATED, NOT_NEGOTIATED)
    else:
        reads = None, None
    return StartupFrame(
        reply=False,
        markers=terms.markers,
        crc=terms.crc,
        revision=revision,
        peer_to_peer=peer_to_peer,
        rtr=terms.rtr if peer_to_peer else NO_RTR,
        private_data=terms.private_data,
        ird=reads[0],
        ord=reads[1],
    )


def check_reply(request: StartupFrame, reply: StartupFrame) -> None:
    """Raises `MalformedFrame` if an accepting Reply does not fit its Request."""
    if reply.enhanced != request.enhanced:
        # An end without RFC 6581 would take the enhanced data for the ULP's private data.
        found, allowed = ("with", "without") if reply.enhanced else ("without", "with")
        raise MalformedFrame(
            f"a Reply {found} enhanced data; allowed: {allowed}, as the Request (RFC 6581, 10)"
        )
    if request.enhanced and reply.revision != request.revision:
        # Without enhanced data the frames of both revisions are the same (RFC 6581, 6).
        raise MalformedFrame(
            f"MPA revision {reply.revision} in the Reply; allowed: {request.revision}, as in the "
            "Request"
        )
    if reply.peer_to_peer and not request.peer_to_peer:
        raise MalformedFrame(
            "flag A in the Reply to a client-server Request; allowed: A=0 (RFC 6581, 9.2)"
        )


def settle(terms: Terms, request: StartupFrame, reply: StartupFrame) -> Connection:
    """What the Initiator does after an accepting Reply that `check_reply` has passed.

    Raises `InsufficientIRD` and `NoMatchingRTR`.
    """
    ord, ird = terms.ord, terms.ird
    if request.ord != NOT_NEGOTIATED:
        ord = limit_reads(ord, reply.ird)
    needed = told_reads(reply.ord)
    if request.ird != NOT_NEGOTIATED and needed is not None:
        if needed > terms.limit:
            raise InsufficientIRD(needed, terms.limit, f"the peer's ORD is {needed}", "device's")
        ird = max(ird, needed)
    rtr = NO_RTR
    if request.peer_to_peer:
        rtr = _choose_rtr(terms, reply)
        # It is a Read that may be under way.
        ord = max(ord, int(rtr == RTR.READ))
    return Connection(
        initiator=True,
        revision=reply.revision,
        crc=request.crc or reply.crc,
        markers_tx=reply.markers,
        markers_rx=request.markers,
        ord=ord,
        ird=ird,
        peer_ord=needed,
        peer_ird=told_reads(reply.ird),
        peer_to_peer=request.peer_to_peer,
        rtr=rtr,
        private_data=reply.private_data,
    )


def _choose_rtr(terms: Terms, reply: StartupFrame) -> RTR:
    """The RTR frame to send: one that both ends can do (RFC 6581, 9.2)."""
    common = terms.rtr & reply.agreed_rtr
    if reply.ird == 0 or terms.limit == 0:
        common &= ~RTR.READ
    for option in _RTR_PREFERENCE:
        if common & option:
            return option
    if not reply.peer_to_peer:
        raise NoMatchingRTR("flag A is not set in the Reply; allowed: A=1, as in the Request")
    raise NoMatchingRTR(f"{reply.rtr!r} in the Reply, IRD {reply.ird}; allowed: {terms.rtr!r}")


# Responder


def check_request(request: StartupFrame, *, minimum_ord: int) -> None:
    """Raises `InsufficientIRD` if the Initiator's IRD is below `minimum_ord`."""
    told = told_reads(request.ird)
    if told is not None and told < minimum_ord:
        raise InsufficientIRD(minimum_ord, told, f"minimum_ord is {minimum_ord}", "peer's")


def accepting_reply(
    terms: Terms, request: StartupFrame, *, receives_posted: bool
) -> tuple[StartupFrame, Connection]:
    """The Reply that accepts, and what is then agreed.

    `receives_posted`: whether the receive queue has work requests. A Send as RTR frame would take
    the first of them, so it is accepted only by an empty queue, and only if nothing else is
    possible (RFC 6581, 9.2).
    """
    ord, ird = limit_reads(terms.ord, request.ird), terms.ird
    rtr = NO_RTR
    if request.peer_to_peer:
        rtr = _answer_rtr(terms, request, receives_posted)
        if rtr == RTR.READ:
            ird = max(ird, 1)  # RFC 6581, 9.1: for the RTR frame
    reads = _answer_reads(request, ird, ord)
    crc = terms.crc or request.crc
    reply = StartupFrame(
        reply=True,
        markers=terms.markers,
        crc=crc,
        revision=request.revision,
        peer_to_peer=request.peer_to_peer,
        rtr=rtr,
        private_data=terms.private_data,
        ird=reads[0],
        ord=reads[1],
    )
    connection = Connection(
        initiator=False,
        revision=request.revision,
        crc=crc,
        markers_tx=request.markers,
        markers_rx=terms.markers,
        ord=ord,
        ird=ird,
        peer_ord=told_reads(request.ord),
        peer_ird=told_reads(request.ird),
        peer_to_peer=request.peer_to_peer,
        rtr=rtr,
        private_data=request.private_data,
    )
    return reply, connection


def _answer_reads(request: StartupFrame, ird: int, ord: int) -> tuple[int, int] | tuple[None, None]:
    """IRD and ORD of a Reply: each not negotiated if its counterpart is not (RFC 6581, 9.1)."""
    if not request.enhanced:
        return None, None
    return (
        NOT_NEGOTIATED if request.ord == NOT_NEGOTIATED else ird,
        NOT_NEGOTIATED if request.ird == NOT_NEGOTIATED else ord,
    )


def _answer_rtr(terms: Terms, request: StartupFrame, receives_posted: bool) -> RTR:
    able = terms.rtr & ~RTR.SEND
    if terms.limit == 0:
        able &= ~RTR.READ
    send = terms.rtr & RTR.SEND
    if receives_posted:
        send = NO_RTR
    if not able | send:
        raise ValueError(
            f"rtr is {terms.rtr!r} for a QP with receives posted and IRD 0 to {terms.limit}; "
            f"allowed: {RTR.WRITE!r} with them"
        )
    asked = request.agreed_rtr
    if terms.ird == 0 and able & RTR.WRITE and asked & able != RTR.READ:
        # No Reads are wanted here, and there is another way.
        able &= ~RTR.READ
    # Nothing in common: what is possible here is told, and the Initiator gives up.
    return able & asked or send & asked or able or send


def rejecting_reply(
    request: StartupFrame, private_data: bytes, *, ird: int, ord: int
) -> StartupFrame:
    """The Reply that refuses, with the IRD and the needed ORD of this end (RFC 6581, 9.1)."""
    reads = _answer_reads(request, ird, ord)
    return StartupFrame(
        reply=True,
        crc=request.crc,
        reject=True,
        revision=request.revision,
        peer_to_peer=request.peer_to_peer,
        rtr=DEFAULT_RTR if request.peer_to_peer else NO_RTR,
        private_data=private_data,
        ird=reads[0],
        ord=reads[1],
    )
