"""The peer of one connection: makes the FPDUs that it would send."""

from itertools import count

from stagecoach.sim.model.ddp import segment_tagged, segment_untagged
from stagecoach.sim.model.mpa import Framer, mulpdu
from stagecoach.sim.model.rdmap import QN_READ_REQUEST, QN_SEND, Opcode, ReadRequest, control_octet

REMOTE_STAG = 0x12345678
"""STag of the peer's memory, which nobody looks at."""


class Peer:
    """FPDUs of messages, each message a list of them."""

    def __init__(self, emss: int, markers: bool = False):
        self._mulpdu = mulpdu(emss, markers)
        self._framer = Framer(markers)
        self._sends = count(1)
        self._requests = count(1)

    def write(self, stag: int, tagged_offset: int, payload: bytes) -> list[bytes]:
        """An RDMA Write."""
        return self._tagged(Opcode.RDMA_WRITE, stag, tagged_offset, payload)

    def answer(self, request: ReadRequest) -> list[bytes]:
        """The RDMA Read Response with zeros."""
        return self._tagged(
            Opcode.RDMA_READ_RESPONSE,
            request.sink_stag,
            request.sink_tagged_offset,
            bytes(request.size),
        )

    def send(self, payload: bytes) -> list[bytes]:
        """A Send."""
        return self._untagged(Opcode.SEND, QN_SEND, next(self._sends), payload)

    def read(self, stag: int, tagged_offset: int, octets: int) -> list[bytes]:
        """An RDMA Read Request for `octets` of the device's memory."""
        request = ReadRequest(REMOTE_STAG, 0, octets, stag, tagged_offset).encode()
        number = next(self._requests)
        return self._untagged(Opcode.RDMA_READ_REQUEST, QN_READ_REQUEST, number, request)

    def _tagged(self, opcode: Opcode, stag: int, offset: int, payload: bytes) -> list[bytes]:
        ulpdus = segment_tagged(
            payload,
            stag=stag,
            tagged_offset=offset,
            mulpdu=self._mulpdu,
            rsvd_ulp=control_octet(opcode),
        )
        return [self._framer.frame(ulpdu) for ulpdu in ulpdus]

    def _untagged(self, opcode: Opcode, qn: int, msn: int, payload: bytes) -> list[bytes]:
        ulpdus = segment_untagged(
            payload, qn=qn, msn=msn, mulpdu=self._mulpdu, rsvd_ulp=control_octet(opcode)
        )
        return [self._framer.frame(ulpdu) for ulpdu in ulpdus]
