"""Terminates: which headers are sent back, and which form a received one has (RFC 5040, 4.8)."""

from stagecoach.sim.model import ddp, rdmap
from stagecoach.sim.model.errors import MPA_INVALID_STARTUP, MPA_TCP_LOST, NAMES, ErrorCode
from stagecoach.sim.model.rdmap import Form, Opcode, ReadRequest, Terminate

# RFC 5040, Figure 10: layer and error type of which the DDP header is sent back.
_WITH_DDP_HEADER = {(0, 1), (0, 2), (1, 1), (1, 2)}
_REMOTE_PROTECTION = (0, 1)
_LAYER_LLP = 2
# RFC 5044, 8 gives no error type: RFC 6580 says 0, some hardware sends the 3 that RFC 5041 keeps
# free for the LLP.
_LLP_TYPES = {0, 3}
# RFC 5044, 8: without a connection, or before Full Operation, there is nothing to send it on.
NEVER_SENT = {MPA_TCP_LOST, MPA_INVALID_STARTUP}


def terminate_for(error: ErrorCode, segment: bytes = b"") -> Terminate:
    """The Terminate for an error found in ``segment``, a ULPDU; empty if in none.

    R=1 exactly for a Remote Protection Error of a Read Request: 4.8 asks for it with Read
    Requests only, Figure 10 not for other error types. The DDP Segment Length is ULPDU_Length.
    """
    if not segment or error[:2] not in _WITH_DDP_HEADER:
        return Terminate(error)
    octets = ddp.header_octets(segment[0])
    opcode = rdmap.decode_control(segment[1]).opcode
    rdmap_header = b""
    if error[:2] == _REMOTE_PROTECTION and opcode == Opcode.RDMA_READ_REQUEST:
        rdmap_header = segment[octets : octets + rdmap.READ_REQUEST_OCTETS]
    return Terminate(error, len(segment), segment[:octets], rdmap_header)


def terminate_for_cut_read(error: ErrorCode, segment: bytes, octets_sent: int) -> Terminate:
    """The Terminate for a Read Request (the ULPDU ``segment``) that was answered in part.

    Its header is sent back as if it asked for the rest (RFC 5040, 4.8).
    """
    header = segment[: ddp.UNTAGGED_HEADER_OCTETS]
    request = ReadRequest.decode(segment[ddp.UNTAGGED_HEADER_OCTETS :])
    return Terminate(error, len(segment), header, request.advanced(octets_sent).encode())


def is_defined(error: ErrorCode) -> bool:
    """Whether some document gives the code a meaning."""
    if error.layer == 0 and error.etype == 0:
        # RFC 5040, Figure 9: any code is acceptable here.
        return True
    if error.layer == _LAYER_LLP and error.etype in _LLP_TYPES:
        return ErrorCode(_LAYER_LLP, 0, error.code) in NAMES
    return error in NAMES


def readings(payload: bytes) -> list[Terminate]:
    """What a received Terminate header can mean, the likeliest first.

    Linux siw sends Layer and EType, and M, D and R, in the reverse order on little-endian hosts.
    Its Terminates are told apart by their length, which has to fit M, D and R, by their reserved
    bits, which are zero, and by codes that only one of the two readings gives a meaning. Where both
    have one, there is no header, and RFC 5040 wins. So do 2/0/05 to 2/0/07, which initiator and
    responder send when the startup fails (RFC 6581, 9.3), perhaps after it.

    Raises ``ValueError`` when the header has the right length in neither form.
    """
    fitting = []
    problem = ""
    for form in Form:
        try:
            fitting.append(Terminate.decode(payload, form))
        except ValueError as error:
            problem = problem or str(error)
    if not fitting:
        raise ValueError(problem)

    return sorted(fitting, key=lambda reading: not is_defined(reading.error))


def read_terminate(payload: bytes) -> Terminate:
    """The likeliest reading of a received Terminate header."""
    return readings(payload)[0]
