"""Register addresses and fields, made from hw/interface/network.rdl by
`python -m stagecoach.hw.interface.generate`. Do not edit.
"""

from enum import IntEnum

from stagecoach.host_driver.registers import Field, Register

NETWORK_ID = Register(
    0x400,
    {
        "magic": Field(0, 32),
    },
    0x50435469,
)
NETWORK_VERSION = Register(
    0x404,
    {
        "minor": Field(0, 16),
        "major": Field(16, 16),
    },
    0x00010001,
)
NETWORK_INTERFACE = Register(
    0x408,
    {
        "digest": Field(0, 32),
    },
    0xAB617DB0,
)
NETWORK_SIZES = Register(
    0x40C,
    {
        "connections": Field(0, 16),
        "mtu": Field(16, 16),
    },
)
NETWORK_INTERRUPT_STATUS = Register(
    0x410,
    {
        "queue": Field(0, 1),
        "failed": Field(1, 1),
    },
)
NETWORK_INTERRUPT_ENABLE = Register(
    0x414,
    {
        "queue": Field(0, 1),
        "failed": Field(1, 1),
    },
)
NETWORK_ENABLE = Register(
    0x418,
    {
        "receive": Field(0, 1),
        "transmit": Field(1, 1),
        "answer": Field(2, 1),
    },
)
NETWORK_STATUS = Register(
    0x41C,
    {
        "receive_idle": Field(0, 1),
        "transmit_idle": Field(1, 1),
        "answers": Field(2, 1),
    },
)
NETWORK_TIME = Register(
    0x420,
    {
        "value": Field(0, 32),
    },
)
NETWORK_MAC_LOW = Register(
    0x424,
    {
        "value": Field(0, 32),
    },
)
NETWORK_MAC_HIGH = Register(
    0x428,
    {
        "value": Field(0, 16),
    },
)
NETWORK_ADDRESS = Register(
    0x42C,
    {
        "value": Field(0, 32),
    },
)
NETWORK_QUEUE_LOW = Register(
    0x430,
    {
        "value": Field(0, 32),
    },
)
NETWORK_QUEUE_HIGH = Register(
    0x434,
    {
        "value": Field(0, 32),
    },
)
NETWORK_SLOTS_LOW = Register(
    0x438,
    {
        "value": Field(0, 32),
    },
)
NETWORK_SLOTS_HIGH = Register(
    0x43C,
    {
        "value": Field(0, 32),
    },
)
NETWORK_FRAMES_LOW = Register(
    0x440,
    {
        "value": Field(0, 32),
    },
)
NETWORK_FRAMES_HIGH = Register(
    0x444,
    {
        "value": Field(0, 32),
    },
)
NETWORK_RINGS = Register(
    0x448,
    {
        "queue_log2": Field(0, 4),
        "slots_log2": Field(8, 4),
        "frames_log2": Field(16, 4),
    },
)
NETWORK_CONSUMERS = Register(
    0x44C,
    {
        "queue_consumer": Field(0, 16),
        "slot_consumer": Field(16, 16),
    },
)
NETWORK_PRODUCER = Register(
    0x450,
    {
        "producer": Field(0, 16),
    },
)
NETWORK_SENT = Register(
    0x454,
    {
        "consumer": Field(0, 16),
    },
)
NETWORK_RTO_MINIMUM = Register(
    0x460,
    {
        "value": Field(0, 32),
    },
)
NETWORK_RTO_MAXIMUM = Register(
    0x464,
    {
        "value": Field(0, 32),
    },
)
NETWORK_R2 = Register(
    0x468,
    {
        "value": Field(0, 32),
    },
)
NETWORK_DELAYED_ACK = Register(
    0x46C,
    {
        "value": Field(0, 32),
    },
)
NETWORK_SECRET_0 = Register(
    0x470,
    {
        "value": Field(0, 32),
    },
)
NETWORK_SECRET_1 = Register(
    0x474,
    {
        "value": Field(0, 32),
    },
)
NETWORK_SECRET_2 = Register(
    0x478,
    {
        "value": Field(0, 32),
    },
)
NETWORK_SECRET_3 = Register(
    0x47C,
    {
        "value": Field(0, 31),
    },
)
NETWORK_FRAME_FATE = Register(
    0x480,
    {
        "fate": Field(0, 5),
    },
)
NETWORK_FRAMES_SEEN = Register(
    0x484,
    {
        "value": Field(0, 32),
    },
)
NETWORK_FRAMES_DROPPED = Register(
    0x488,
    {
        "value": Field(0, 32),
    },
)
NETWORK_FAULTS = Register(
    0x48C,
    {
        "refused": Field(0, 16),
        "failed": Field(16, 16),
    },
)
NETWORK_ANSWERED = Register(
    0x490,
    {
        "value": Field(0, 32),
    },
)
NETWORK_UNANSWERED = Register(
    0x494,
    {
        "value": Field(0, 32),
    },
)
NETWORK_URGENT = Register(
    0x498,
    {
        "value": Field(0, 32),
    },
)
NETWORK_COMMAND = Register(
    0x4A0,
    {
        "opcode": Field(0, 8),
    },
)
NETWORK_COMMAND_STATUS = Register(
    0x4A4,
    {
        "busy": Field(0, 1),
        "invalid": Field(1, 1),
    },
)
TCP_CONNECTION = Register(
    0x500,
    {
        "connection": Field(0, 8),
        "lane": Field(8, 8),
    },
)
TCP_LOCAL = Register(
    0x504,
    {
        "value": Field(0, 32),
    },
)
TCP_REMOTE = Register(
    0x508,
    {
        "value": Field(0, 32),
    },
)
TCP_PORTS = Register(
    0x50C,
    {
        "local": Field(0, 16),
        "remote": Field(16, 16),
    },
)
TCP_SEND_NEXT = Register(
    0x510,
    {
        "value": Field(0, 32),
    },
)
TCP_SEND_WINDOW = Register(
    0x514,
    {
        "value": Field(0, 32),
    },
)
TCP_WINDOW_FROM = Register(
    0x518,
    {
        "value": Field(0, 32),
    },
)
TCP_RECEIVE_NEXT = Register(
    0x51C,
    {
        "value": Field(0, 32),
    },
)
TCP_RECEIVE_EDGE = Register(
    0x520,
    {
        "value": Field(0, 32),
    },
)
TCP_CWND = Register(
    0x524,
    {
        "value": Field(0, 32),
    },
)
TCP_SRTT8 = Register(
    0x528,
    {
        "value": Field(0, 32),
    },
)
TCP_RTTVAR4 = Register(
    0x52C,
    {
        "value": Field(0, 32),
    },
)
TCP_RTO = Register(
    0x530,
    {
        "value": Field(0, 32),
    },
)
TCP_OPTIONS = Register(
    0x534,
    {
        "send_shift": Field(0, 4),
        "receive_shift": Field(8, 4),
        "sampled": Field(16, 1),
    },
)
TCP_SEGMENT_SIZE = Register(
    0x538,
    {
        "value": Field(0, 14),
    },
)
TCP_OCTETS = Register(
    0x53C,
    {
        "value": Field(0, 14),
    },
)
TCP_RX_RING_LOW = Register(
    0x540,
    {
        "value": Field(0, 32),
    },
)
TCP_RX_RING_HIGH = Register(
    0x544,
    {
        "value": Field(0, 16),
    },
)
TCP_TX_RING_LOW = Register(
    0x548,
    {
        "value": Field(0, 32),
    },
)
TCP_TX_RING_HIGH = Register(
    0x54C,
    {
        "value": Field(0, 16),
    },
)
TCP_RINGS = Register(
    0x550,
    {
        "rx": Field(0, 4),
        "tx": Field(8, 4),
    },
)
TCP_HEADER_ROW = Register(
    0x554,
    {
        "row": Field(0, 3),
    },
)
TCP_HEADER_LOW = Register(
    0x558,
    {
        "value": Field(0, 32),
    },
)
TCP_HEADER_HIGH = Register(
    0x55C,
    {
        "value": Field(0, 32),
    },
)
TCP_NUMBER = Register(
    0x560,
    {
        "value": Field(0, 32),
    },
)
TCP_ACKNOWLEDGMENT = Register(
    0x564,
    {
        "value": Field(0, 32),
    },
)
TCP_FLAGS = Register(
    0x568,
    {
        "window": Field(0, 16),
        "control": Field(16, 8),
    },
)
TCP_INFO_WORD = Register(
    0x570,
    {
        "word": Field(0, 5),
    },
)
TCP_INFO = Register(
    0x574,
    {
        "value": Field(0, 32),
    },
)


class NetworkOpcode(IntEnum):
    """NETWORK_COMMAND.opcode."""

    HEADER = 1
    ESTABLISH = 2
    SEGMENT = 3
    SEND = 4
    RELEASE = 5
    ATTACH = 6
    DETACH = 7
    CLOSE = 8
    ABORT = 9
    RESIZE = 10
    DISCARD = 11
    INFO = 12
    FORGET = 13
