"""Names and values of the verbs, as pyverbs has them without the IBV_ prefix."""

from enum import IntEnum, IntFlag

from stagecoach.host_driver.registers import DeviceQPState
from stagecoach.hw.interface.queue_entries import AtomicOperation, CompletionOpcode, SendOpcode


class AccessFlags(IntFlag):
    """What a memory region may be used for. Local reading is always allowed.

    iWARP has no right of its own for atomics: who may read and write may also do both in one step.

    >>> AccessFlags.REMOTE_ATOMIC == AccessFlags.REMOTE_READ | AccessFlags.REMOTE_WRITE
    True
    """

    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = REMOTE_WRITE | REMOTE_READ


class WROpcode(IntEnum):
    """Operation of a send work request.

    >>> WROpcode.SEND_WITH_INV.completed_as.name
    'SEND'
    """

    RDMA_WRITE = SendOpcode.RDMA_WRITE
    RDMA_READ = SendOpcode.RDMA_READ
    SEND = SendOpcode.SEND
    SEND_WITH_INV = SendOpcode.SEND_WITH_INVALIDATE
    IMM_DATA = SendOpcode.IMMEDIATE
    LOCAL_INV = SendOpcode.LOCAL_INVALIDATE
    REG_MR = SendOpcode.FAST_REGISTER  # as the kernel's verbs name it
    ATOMIC_CMP_AND_SWP = 0x41
    ATOMIC_FETCH_AND_ADD = 0x42
    ATOMIC_SWAP = 0x43  # of the draft before RFC 7306; libibverbs has none
    RDMA_WRITE_WITH_IMM = 0x40  # two send entries: an RDMA Write and Immediate Data

    @property
    def completed_as(self) -> "WCOpcode":
        """What the completion of such a work request says."""
        return _COMPLETED_AS[self]


WITH_IMMEDIATE = (WROpcode.IMM_DATA, WROpcode.RDMA_WRITE_WITH_IMM)
"""The operations that have `imm_data`."""


class SendFlags(IntFlag):
    """Options of a send work request."""

    SIGNALED = 1
    SOLICITED = 2  # of a Send or Immediate Data: the peer gets an event, if it asked for such
    FENCE = 4  # it begins when all before it in the send queue have completed
    INLINE = 8  # the message is copied: its buffer is free when the post returns


class WCOpcode(IntEnum):
    """What a work completion completes."""

    RDMA_WRITE = CompletionOpcode.RDMA_WRITE
    RDMA_READ = CompletionOpcode.RDMA_READ
    SEND = CompletionOpcode.SEND
    IMM_DATA = CompletionOpcode.IMMEDIATE
    LOCAL_INV = CompletionOpcode.LOCAL_INVALIDATE
    REG_MR = CompletionOpcode.FAST_REGISTER
    RECV = CompletionOpcode.RECEIVE
    COMP_SWAP = 0x41
    FETCH_ADD = 0x42
    SWAP = 0x43
    RECV_RDMA_WITH_IMM = 0x81  # of Immediate Data, whether an RDMA Write came before it or not


class WCFlags(IntFlag):
    """What else a work completion says."""

    WITH_IMM = 2  # the peer sent Immediate Data, which is in `imm_data`
    WITH_INV = 8  # the peer invalidated the STag `invalidated_rkey`
    SOLICITED = 1 << 16  # the peer asked for an event; libibverbs has no such flag


class WCStatus(IntEnum):
    """Result of a work request; numbers and meanings are those of libibverbs."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6  # also of a LOCAL_INV or REG_MR that is refused
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11


class EventType(IntEnum):
    """What an asynchronous event tells; numbers are those of libibverbs."""

    QP_FATAL = 1  # a QP stopped
    SRQ_ERR = 14  # entries of an SRQ could not be read, or its doorbell was refused
    SRQ_LIMIT_REACHED = 15  # fewer work requests are in an SRQ than its limit
    QP_LAST_WQE_REACHED = 16  # a QP that stopped takes nothing more from its SRQ


class QPState(IntEnum):
    """State of a QP, as QP_STATE tells it."""

    RESET = DeviceQPState.RESET
    INIT = DeviceQPState.INIT
    RTS = DeviceQPState.RTS
    ERR = DeviceQPState.ERROR


_COMPLETED_AS = {
    WROpcode.RDMA_WRITE: WCOpcode.RDMA_WRITE,
    WROpcode.RDMA_READ: WCOpcode.RDMA_READ,
    WROpcode.SEND: WCOpcode.SEND,
    WROpcode.SEND_WITH_INV: WCOpcode.SEND,
    WROpcode.IMM_DATA: WCOpcode.IMM_DATA,
    WROpcode.LOCAL_INV: WCOpcode.LOCAL_INV,
    WROpcode.REG_MR: WCOpcode.REG_MR,
    WROpcode.RDMA_WRITE_WITH_IMM: WCOpcode.RDMA_WRITE,
    WROpcode.ATOMIC_CMP_AND_SWP: WCOpcode.COMP_SWAP,
    WROpcode.ATOMIC_FETCH_AND_ADD: WCOpcode.FETCH_ADD,
    WROpcode.ATOMIC_SWAP: WCOpcode.SWAP,
}

ATOMIC_OPERATIONS = {
    WROpcode.ATOMIC_FETCH_AND_ADD: AtomicOperation.FETCH_ADD,
    WROpcode.ATOMIC_SWAP: AtomicOperation.SWAP,
    WROpcode.ATOMIC_CMP_AND_SWP: AtomicOperation.CMP_SWAP,
}
"""AOpCodes (RFC 7306, Figure 5; Swap: draft-ietf-storm-rdmap-ext-00)."""

ANSWERED = (WROpcode.RDMA_READ, *ATOMIC_OPERATIONS)
"""What the peer answers: ORD is how many of them are outstanding at a time."""
