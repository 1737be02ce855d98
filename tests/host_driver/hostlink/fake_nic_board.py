"""A board whose NIC is in Python: at a pseudo-terminal, with its rings in an array."""

import time
from collections import deque

from stagecoach.host_driver import memory_registers
from stagecoach.host_driver.registers import Register
from stagecoach.hw.interface.hostlink import BOARD_ACCESSES, Kind
from stagecoach.hw.interface.litedram import USER_CLOCK_HZ
from tests.host_driver.board_memory.fake_board import FakeBoard as WindowOfCore
from tests.host_driver.hostlink.fake_board import FakeBoard
from tests.host_driver.network.fake_nic import BY_ADDRESS, FakeNic

RESPONSE_SLVERR = 2

MEMORY_LOG2 = 23
WORD = 8
NETWORK_IRQ = 2


CONTROLLER = {
    register.address: register
    for register in vars(memory_registers).values()
    if isinstance(register, Register)
}


class Controller(WindowOfCore):
    """The window to a memory controller, whose time is the wall's."""

    def _pass(self) -> None:
        super()._pass()
        self.now = max(self.now, time.monotonic_ns() * (USER_CLOCK_HZ // 1000) // 1_000_000)


class FakeNicBoard(FakeBoard):
    """Its time is the wall's, its engine the reference TCP (`FakeNic`).

    Attributes
    ----------
    nic: registers, engine and wire. octets: the board's memory. controller: of it, or `None`.
    """

    def __init__(self) -> None:
        self.nic = FakeNic(unaligned=0)
        self.octets = bytearray(1 << MEMORY_LOG2)
        self.nic.mapped[0] = memoryview(self.octets)
        self.arriving: deque[bytes] = deque()
        self._levels = 0
        self.controller: Controller | None = None
        super().__init__(events=0, memory_log2=MEMORY_LOG2)

    def serve(self) -> None:
        self.nic.run_to(time.monotonic_ns() // 1000)
        while self.arriving:
            self.nic.frame(self.arriving.popleft())
        levels = NETWORK_IRQ * self.nic.interrupt
        if levels != self._levels:
            self._levels = levels
            self.to_send.append((Kind.INTERRUPT, bytes([levels])))

    def _take(self, kind: int, payload: bytes) -> None:
        address = int.from_bytes(payload[:2], "little")
        if kind == Kind.BOARD_ACCESS:
            self.to_send.append((Kind.BOARD_ANSWER, self._access(payload)))
        elif kind == Kind.REGISTER_READ and address in BY_ADDRESS:
            value = self.nic.read_register(address)
            self.to_send.append((Kind.REGISTER_DONE, bytes(1) + value.to_bytes(4, "little")))
        elif kind == Kind.REGISTER_WRITE and address in BY_ADDRESS:
            self.nic.write_register(address, int.from_bytes(payload[2:6], "little"))
            self.to_send.append((Kind.REGISTER_DONE, bytes(5)))
        elif self.controller is not None and address in CONTROLLER:
            value = 0
            if kind == Kind.REGISTER_READ:
                value = CONTROLLER[address].pack(**self.controller.read(CONTROLLER[address]))
            else:
                written = int.from_bytes(payload[2:6], "little")
                fields = CONTROLLER[address].unpack(written)
                self.controller.write(CONTROLLER[address], **fields)
            self.to_send.append((Kind.REGISTER_DONE, bytes(1) + value.to_bytes(4, "little")))
        else:
            super()._take(kind, payload)

    def _access(self, payload: bytes) -> bytes:
        assert sum(kind == Kind.BOARD_ANSWER for kind, _ in self.to_send) < BOARD_ACCESSES
        at, words, writes = int.from_bytes(payload[:8], "little"), payload[8], payload[9:]
        # A memory that is not open answers nothing; here it says so.
        if self.controller and not self.controller.core.values["ddrctrl_init_done"]:
            return bytes(0 if writes else WORD * words) + bytes([RESPONSE_SLVERR])
        if not writes:
            return bytes(self.octets[at : at + WORD * words]) + bytes(1)
        assert len(writes) == 9 * words
        for number in range(0, len(writes), 9):
            for lane in range(WORD):
                if writes[number] >> lane & 1:
                    self.octets[at + lane] = writes[number + 1 + lane]
            at += WORD
        return bytes(1)


def join(first: FakeNicBoard, second: FakeNicBoard) -> None:
    """A wire between two boards."""
    first.nic.wire = second.arriving.append
    second.nic.wire = first.arriving.append
