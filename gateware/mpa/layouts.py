"""What flows between the MPA blocks, the assembler and the LLP port."""

from amaranth.lib import data

from stagecoach.gateware.config import WORD_WIDTH, RnicConfig
from stagecoach.gateware.layouts import Layouts

ULPDU_BEAT = data.StructLayout({"data": 64, "last": 1, "error": 1})
"""A ULPDU from lane 2 of its first word on: lanes 0 and 1 there, and all after its end, are
meaningless. `error`, on the last beat: its payload is not what it should be."""

CHUNK_OCTETS = 2048
"""Most bytes that the receiver requests at once from the LLP."""

ANSWER = data.StructLayout({"last_beat": range(CHUNK_OCTETS // 8), "half": 1, "end": 1, "empty": 1})
"""One request as the deframer sees it: number of the last beat of its answer, from 0; `half` if
only 4 bytes of that beat were requested; `end` if it is the last one of the visit. With `empty` it
is none, and there is no beat: it only says that the visit ends."""

SMALLEST_FPDU_OCTETS = 8
"""ULPDU_Length, pad and CRC: an FPDU cannot be shorter, and its length is then known, even if a
Marker is among the first 8 bytes."""

FPDU_WORD = data.StructLayout(
    {
        "data": 64,
        "first": 1,
        "final": 1,  # last word of the FPDU
        "half": 1,  # of the last one: the FPDU ends in the lower 4 bytes
        "oversize": 1,  # ULPDU_Length is not allowed: only the first word counts
        "markers": 2,  # the lower, the upper 4 bytes are a Marker of this FPDU
    }
)
"""8 bytes of a received FPDU, counted from its start, or from the Marker directly before it."""

MARKER = data.StructLayout({"reserved": 16, "fpduptr_high": 8, "fpduptr_low": 8})
"""RFC 5044, 4.2; octet 0 is the lowest one, so the two octets of FPDUPTR are apart."""


class MpaLayouts:
    """The layouts that depend on the sizes of the device."""

    def __init__(self, config: RnicConfig):
        qp = config.qp_bits

        # Assembler to framer: one FPDU. The meaning is that of `Layouts.ulpdu_job`. If a Marker
        # stands directly before the FPDU, it starts with that: then `until_marker` is 0.
        self.framer_job = data.StructLayout(
            {
                "qp": qp,
                "ulpdu_length": 16,
                "crc": 1,
                "markers": 1,
                "until_marker": 7,
                "empty": 1,
                "close": 1,
                "report": 1,
                "sent": Layouts(config).sent_item,
            }
        )

        # Table to requests: a visit, from the start of an FPDU up to what is available. Both are
        # multiples of 4.
        self.begin = data.StructLayout(
            {"qp": qp, "crc": 1, "markers": 1, "position": 32, "available": 32}
        )
        # Requests to deframer, and what it came to: `dead` if an FPDU was wrong, the position after
        # the last good FPDU, and the bytes without which the next one is not worth a visit.
        self.visit = data.StructLayout({"qp": qp, "crc": 1, "markers": 1, "position": 32})
        self.visit_end = data.StructLayout({"qp": qp, "dead": 1, "consumed": 32, "needed": 17})

        # The streams of the LLP port, with the names of `LlpSignature`: as the framer fills it and,
        # in the width of the port, as it is there.
        self.tx = _tx(qp, WORD_WIDTH)
        self.port_tx = _tx(qp, config.data_width)
        self.rx_request = data.StructLayout({"connection": qp, "position": 32, "octets": 17})
        self.rx_release = data.StructLayout({"connection": qp, "position": 32})


def _tx(qp_bits: int, width: int) -> data.StructLayout:
    return data.StructLayout(
        {
            "connection": qp_bits,
            "data": width,
            "octets": range(width // 8 + 1),
            "first": 1,
            "last": 1,
            "close": 1,
        }
    )
