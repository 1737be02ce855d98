"""The sizes of one RNIC: every block is built from an `RnicConfig`."""

from dataclasses import dataclass

from stagecoach.hw.interface.sizes import SIZES

MAX_ULPDU_LENGTH = 64768
"""Longest ULPDU in octets (RFC 5044, 4.5)."""

WORD_WIDTH = 64
"""Bits of a word: what moves in a cycle inside the device, whatever the width of its ports."""

WORD_OCTETS = WORD_WIDTH // 8
"""Bytes of a word."""

DATA_WIDTHS = (32, WORD_WIDTH, 128)
"""Allowed widths of the ports (docs/decisions/data-width.md)."""

MAX_AXI_BEATS = 256
"""Longest INCR burst (AMBA AXI4, A3.4.1). 256 words are 2 KiB, so an aligned block of them never
contains a 4 KiB boundary."""


def _check(name: str, value: int, allowed: object, ok: bool) -> None:
    if not ok:
        raise ValueError(f"RnicConfig.{name} is {value!r}; allowed: {allowed}")


@dataclass(frozen=True)
class RnicConfig:
    """All sizes of a device.

    Parameters
    ----------
    data_width: width of the ports to host memory and to the LLP in bits: 32, 64 or 128. Inside
        there are always 64: 32 halve the bytes per cycle, 128 do not double them.
    qps: number of Queue Pairs, and of LLP connections (connection n belongs to QP n).
    cqs: number of Completion Queues.
    stags: number of STag table entries.
    read_queue_depth: largest IRD and ORD of a QP (RFC 5040, 6.1).
    prefetch_lanes: QPs of whose send ring (and receive ring) many entries are held on chip.
    pending_sends: work requests of a QP between transmission and completion.
    fpdu_store_octets: size of the store that holds received FPDUs until they are verified
        and placed. At least one longest FPDU and one beat.
    payload_buffer_octets: transmit payload read ahead from host memory; bandwidth times latency.
    max_burst_beats: longest AXI burst, in words of 64 bits: at a width of 32 it has twice as many
        beats.
    counters: count bytes, messages and errors, in one block RAM (`registers/counters.py`).
    answers: of a NIC: ARP and echo requests can be answered without the driver (`ip/responder.py`).
    """

    data_width: int = 64
    qps: int = 64
    cqs: int = 64
    stags: int = 1024
    read_queue_depth: int = 8
    prefetch_lanes: int = 4
    pending_sends: int = 32
    fpdu_store_octets: int = 65536
    payload_buffer_octets: int = 4096
    max_burst_beats: int = 32
    counters: bool = True
    answers: bool = False

    def __post_init__(self) -> None:
        widths = ", ".join(map(str, DATA_WIDTHS))
        ok = isinstance(self.data_width, int) and self.data_width in DATA_WIDTHS
        _check("data_width", self.data_width, widths, ok)
        for name, size in SIZES.items():
            _check(name, getattr(self, name), size, getattr(self, name) in size)
        longest = MAX_AXI_BEATS * self.data_width // WORD_WIDTH
        allowed = f"up to {longest} with a data_width of {self.data_width}"
        _check("max_burst_beats", self.max_burst_beats, allowed, self.max_burst_beats <= longest)
        for name in ("counters", "answers"):
            value = getattr(self, name)
            _check(name, value, "True, False", value in (True, False))

    @property
    def qp_bits(self) -> int:
        """Width of a QP number."""
        return (self.qps - 1).bit_length()

    @property
    def cq_bits(self) -> int:
        """Width of a CQ number."""
        return (self.cqs - 1).bit_length()

    @property
    def send_units(self) -> int:
        """Units of its send ring that each QP has on chip without a lane, 2 to 4.

        Two are the longest entry. Four, with up to 64 QPs, let 16 of them hide a read latency of
        1,000 cycles (docs/decisions/prefetch-lanes.md).
        """
        return max(2, min(4, 256 // self.qps))

    @property
    def receive_units(self) -> int:
        """Receive entries that each QP has on chip without a lane, 2 to 8.

        As many as a QP may get Sends in a row without a wait for host memory, which all QPs would
        share. Up to 64 QPs have 8; with more, 32 KiB of block RAM are shared out
        (docs/decisions/prefetch-lanes.md).
        """
        return max(2, min(8, 512 // self.qps))

    @property
    def store_address_bits(self) -> int:
        """Width of a 64-bit word address of the FPDU store."""
        return (self.fpdu_store_octets // 8 - 1).bit_length()

    @property
    def store_number_bits(self) -> int:
        """Width of the number of an FPDU in the store: one block RAM has a row for each."""
        return 9
