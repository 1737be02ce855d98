"""Register addresses and fields, made from hw/interface/registers.rdl by
`python -m stagecoach.hw.interface.generate`. Do not edit.
"""

from enum import IntEnum
from typing import NamedTuple


class Field(NamedTuple):
    """Bits `low` to `low + width - 1` of a register."""

    low: int
    width: int


class Register(NamedTuple):
    """A 32-bit register at byte offset `address`; `constant` if it never changes."""

    address: int
    fields: dict[str, Field]
    constant: int | None = None

    def pack(self, **values: int) -> int:
        """The register value of the named fields; `ValueError` if one does not fit."""
        word = 0
        for name, value in values.items():
            field = self.fields[name]
            if not 0 <= value < 1 << field.width:
                raise ValueError(f"field {name} is {value}; allowed: 0 to {(1 << field.width) - 1}")
            word |= value << field.low
        return word

    def unpack(self, word: int) -> dict[str, int]:
        """The fields of a register value."""
        return {
            name: word >> field.low & ((1 << field.width) - 1)
            for name, field in self.fields.items()
        }


ID = Register(
    0x000,
    {
        "magic": Field(0, 32),
    },
    0x50525769,
)
VERSION = Register(
    0x004,
    {
        "minor": Field(0, 16),
        "major": Field(16, 16),
    },
    0x00030003,
)
QUEUES = Register(
    0x008,
    {
        "qps": Field(0, 16),
        "cqs": Field(16, 16),
    },
)
LIMITS = Register(
    0x00C,
    {
        "stags_log2": Field(0, 8),
        "read_queue_depth": Field(8, 8),
        "pending_sends": Field(16, 16),
    },
)
CYCLES_LOW = Register(
    0x010,
    {
        "value": Field(0, 32),
    },
)
CYCLES_HIGH = Register(
    0x014,
    {
        "value": Field(0, 32),
    },
)
CAPABILITIES = Register(
    0x018,
    {
        "immediate_data": Field(0, 1),
        "atomics": Field(1, 1),
        "swap": Field(2, 1),
        "counters": Field(3, 1),
        "srq": Field(4, 1),
    },
)
INTERFACE = Register(
    0x01C,
    {
        "digest": Field(0, 32),
    },
    0x4BC6018D,
)
INTERRUPT_STATUS = Register(
    0x020,
    {
        "completion": Field(0, 1),
        "event": Field(1, 1),
    },
)
INTERRUPT_ENABLE = Register(
    0x024,
    {
        "completion": Field(0, 1),
        "event": Field(1, 1),
    },
)
SETTINGS = Register(
    0x028,
    {
        "strict_rfc7306": Field(0, 1),
    },
)
SEND_DOORBELL = Register(
    0x030,
    {
        "qp": Field(0, 16),
        "producer": Field(16, 16),
    },
)
RECEIVE_DOORBELL = Register(
    0x034,
    {
        "qp": Field(0, 16),
        "producer": Field(16, 16),
    },
)
CQ_DOORBELL = Register(
    0x038,
    {
        "cq": Field(0, 14),
        "solicited": Field(14, 1),
        "arm": Field(15, 1),
        "consumer": Field(16, 16),
    },
)
COMMAND = Register(
    0x040,
    {
        "opcode": Field(0, 8),
    },
)
COMMAND_STATUS = Register(
    0x044,
    {
        "busy": Field(0, 1),
        "invalid": Field(1, 1),
    },
)
QP_STATE = Register(
    0x048,
    {
        "state": Field(0, 2),
        "cause": Field(8, 8),
    },
)
CQ_ANSWERED = Register(
    0x04C,
    {
        "entries": Field(0, 16),
    },
)
QP_TAKEN = Register(
    0x050,
    {
        "index": Field(0, 16),
        "taken": Field(16, 1),
    },
)
QP_NUMBER = Register(
    0x080,
    {
        "qp": Field(0, 16),
    },
)
QP_PD = Register(
    0x084,
    {
        "pd": Field(0, 16),
    },
)
QP_CQS = Register(
    0x088,
    {
        "send_cq": Field(0, 16),
        "receive_cq": Field(16, 16),
    },
)
QP_SEND_BASE_LOW = Register(
    0x08C,
    {
        "value": Field(0, 32),
    },
)
QP_SEND_BASE_HIGH = Register(
    0x090,
    {
        "value": Field(0, 32),
    },
)
QP_RECEIVE_BASE_LOW = Register(
    0x094,
    {
        "value": Field(0, 32),
    },
)
QP_RECEIVE_BASE_HIGH = Register(
    0x098,
    {
        "value": Field(0, 32),
    },
)
QP_RINGS = Register(
    0x09C,
    {
        "send_log2": Field(0, 4),
        "receive_log2": Field(16, 4),
    },
)
QP_READS = Register(
    0x0A0,
    {
        "ord": Field(0, 16),
        "ird": Field(16, 16),
    },
)
QP_EMSS = Register(
    0x0A4,
    {
        "emss": Field(0, 16),
    },
)
QP_MODE = Register(
    0x0A8,
    {
        "crc": Field(0, 1),
        "transmit_markers": Field(1, 1),
        "receive_markers": Field(2, 1),
        "initiator": Field(3, 1),
        "rfc7306": Field(4, 1),
    },
)
QP_SRQ = Register(
    0x0AC,
    {
        "ring": Field(0, 16),
        "shared": Field(16, 1),
    },
)
SRQ_LIMIT = Register(
    0x0B0,
    {
        "limit": Field(0, 16),
        "producer": Field(16, 16),
    },
)
STAG_VALUE = Register(
    0x0C0,
    {
        "stag": Field(0, 32),
    },
)
STAG_ACCESS = Register(
    0x0C4,
    {
        "pd": Field(0, 16),
        "rights": Field(16, 4),
        "scoped": Field(24, 1),
        "fast": Field(25, 1),
    },
)
STAG_QP = Register(
    0x0C8,
    {
        "qp": Field(0, 16),
    },
)
STAG_BASE_LOW = Register(
    0x0CC,
    {
        "value": Field(0, 32),
    },
)
STAG_BASE_HIGH = Register(
    0x0D0,
    {
        "value": Field(0, 32),
    },
)
STAG_LENGTH_LOW = Register(
    0x0D4,
    {
        "value": Field(0, 32),
    },
)
STAG_LENGTH_HIGH = Register(
    0x0D8,
    {
        "value": Field(0, 16),
    },
)
STAG_ADDRESS_LOW = Register(
    0x0DC,
    {
        "value": Field(0, 32),
    },
)
STAG_ADDRESS_HIGH = Register(
    0x0E0,
    {
        "value": Field(0, 32),
    },
)
CQ_NUMBER = Register(
    0x0F0,
    {
        "cq": Field(0, 16),
    },
)
CQ_BASE_LOW = Register(
    0x0F4,
    {
        "value": Field(0, 32),
    },
)
CQ_BASE_HIGH = Register(
    0x0F8,
    {
        "value": Field(0, 32),
    },
)
CQ_SIZE = Register(
    0x0FC,
    {
        "log2": Field(0, 4),
    },
)
FPDUS_SENT = Register(
    0x200,
    {
        "value": Field(0, 32),
    },
)
FPDUS_RECEIVED = Register(
    0x204,
    {
        "value": Field(0, 32),
    },
)
EVENTS_LOST = Register(
    0x208,
    {
        "events": Field(0, 16),
    },
)
COUNTER_SELECT = Register(
    0x210,
    {
        "counter": Field(0, 3),
        "index": Field(16, 16),
    },
)
COUNTER_LOW = Register(
    0x214,
    {
        "value": Field(0, 32),
    },
)
COUNTER_HIGH = Register(
    0x218,
    {
        "value": Field(0, 4),
    },
)
COUNTER_LOST = Register(
    0x21C,
    {
        "value": Field(0, 8),
    },
)


class CommandOpcode(IntEnum):
    """COMMAND.opcode."""

    QP_CREATE = 1
    QP_CONNECT = 2
    QP_STOP = 3
    QP_DESTROY = 4
    STAG_WRITE = 5
    STAG_INVALIDATE = 6
    CQ_ENABLE = 7
    CQ_DISABLE = 8
    STAG_RESET = 9
    SRQ_CREATE = 10
    SRQ_DESTROY = 11
    SRQ_LIMIT = 12


class DeviceQPState(IntEnum):
    """QP_STATE.state."""

    RESET = 0
    INIT = 1
    RTS = 2
    ERROR = 3


class CounterWord(IntEnum):
    """COUNTER_SELECT.counter."""

    FPDUS_SENT = 0
    OCTETS_SENT = 1
    MESSAGES_SENT = 2
    OUTSTANDING_READS = 3
    FPDUS_RECEIVED = 4
    OCTETS_RECEIVED = 5
    MESSAGES_RECEIVED = 6
    STOPPED = 7
