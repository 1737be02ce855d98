"""A board that answers nonsense: the driver says what is wrong with it, soon, and lets go of it."""

import time

import pytest

from stagecoach.cli.main import main
from stagecoach.host_driver import CQ, Context, DeviceError, registers
from stagecoach.host_driver.errors import StagecoachError
from stagecoach.host_driver.hostlink.serial_device import SerialDevice
from stagecoach.host_driver.transport.base import DeviceClosed
from stagecoach.hw.interface.registers import registers as described
from tests.host_driver.fake_device import FakeDevice
from tests.host_driver.hostlink.fake_board import FakeBoard

SECONDS = 0.3


@pytest.fixture
def board():
    """One that looks like a device; its commands end at once."""
    with FakeBoard() as board:
        board.registers = dict(FakeDevice().words)
        yield board


def opened(board: FakeBoard, **seconds: float) -> Context:
    return Context(SerialDevice(board.port), **seconds)


def refusal(board: FakeBoard, **seconds: float) -> tuple[str, float]:
    """What opening it is refused with, and after how many seconds."""
    begin = time.monotonic()
    with pytest.raises(DeviceError) as refused:
        opened(board, **seconds)
    return str(refused.value), time.monotonic() - begin


def test_a_board_that_answers_sense_is_opened(board):
    with opened(board) as context:
        assert context.attr.max_qp == 4


def wrong(register: registers.Register, field: str, *values: int) -> list:
    name = next(name for name, each in vars(registers).items() if each is register)
    return [pytest.param(register, field, value, id=f"{name}.{field}={value}") for value in values]


@pytest.mark.parametrize(
    ("register", "field", "value"),
    [
        *wrong(registers.QUEUES, "qps", 0, 1, 3, 48, 512, 65535),
        *wrong(registers.QUEUES, "cqs", 0, 1, 3, 512, 65535),
        *wrong(registers.LIMITS, "stags_log2", 0, 3, 17, 255),
        *wrong(registers.LIMITS, "read_queue_depth", 0, 3, 128, 255),
        *wrong(registers.LIMITS, "pending_sends", 0, 2, 5, 512, 65535),
    ],
)
def test_a_size_that_no_device_has_is_named_and_nothing_is_asked_of_it(
    board, register, field, value
):
    fields = register.unpack(board.registers[register.address]) | {field: value}
    board.registers[register.address] = register.pack(**fields)
    before = dict(board.registers)
    message, seconds = refusal(board)
    assert f".{field} {value}; allowed: " in message
    assert seconds < 5 and board.registers == before


@pytest.mark.parametrize("word", [0, 0xFFFFFFFF])
def test_a_board_whose_registers_are_all_the_same_is_refused(board, word):
    board.registers = {register.address: word for register in described()}
    message, seconds = refusal(board)
    assert message.startswith(f"the device has ID 0x{word:08X}; allowed: ") and seconds < 5


def test_a_board_that_is_always_busy_is_named_in_time(board):
    board.registers[registers.COMMAND_STATUS.address] = registers.COMMAND_STATUS.pack(busy=1)
    message, seconds = refusal(board, command_seconds=SECONDS)
    assert f"COMMAND_STATUS.busy is 1 for {SECONDS} s" in message
    assert SECONDS <= seconds < 5


def test_by_default_a_command_takes_well_below_45_s(board, monkeypatch):
    monkeypatch.setattr("stagecoach.host_driver.device.time", clock := HastyClock())
    board.registers[registers.COMMAND_STATUS.address] = registers.COMMAND_STATUS.pack(busy=1)
    message, _ = refusal(board)
    assert "COMMAND_STATUS.busy is 1 for 10 s" in message
    assert clock.now < 15


class HastyClock:
    """Each look at it costs a tenth of a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.1
        return self.now


def test_a_board_on_which_every_command_is_slow_is_not_waited_for(board):
    """Each command ends in its time, all together do not."""
    busy = SlowStatus()
    board.registers = SlowRegisters(board.registers, busy)
    message, seconds = refusal(board, command_seconds=5.0, open_seconds=SECONDS)
    assert message.startswith(f"the device is not open after {SECONDS} s, at ")
    assert "allowed: more open_seconds" in message
    assert SECONDS <= seconds < 5


class SlowStatus:
    """COMMAND_STATUS that is busy for most of `SECONDS` from the first look of each command on."""

    def __init__(self) -> None:
        self._begin: float | None = None

    def word(self) -> int:
        now = time.monotonic()
        if self._begin is None:
            self._begin = now
        busy = now - self._begin < 0.8 * SECONDS
        if not busy:
            self._begin = None
        return registers.COMMAND_STATUS.pack(busy=int(busy))


class SlowRegisters(dict):
    """Registers whose COMMAND_STATUS is a `SlowStatus`."""

    def __init__(self, words: dict[int, int], status: SlowStatus):
        super().__init__(words)
        self._status = status

    def get(self, address, default=None):  # type: ignore[no-untyped-def]
        if address == registers.COMMAND_STATUS.address:
            return self._status.word()
        return super().get(address, default)


def test_a_command_that_does_not_end_is_named_and_closing_does_not_wait_again(board):
    context = opened(board, command_seconds=SECONDS)
    board.registers[registers.COMMAND_STATUS.address] = registers.COMMAND_STATUS.pack(busy=1)
    begin = time.monotonic()
    with pytest.raises(DeviceError, match="command 9, STAG_RESET, is not finished: COMMAND_STATUS"):
        context.command(9)
    with pytest.raises(StagecoachError, match="command 9 has not ended"):
        context.close()
    assert time.monotonic() - begin < 5
    with pytest.raises(DeviceClosed):
        context.read(registers.ID)


def test_a_cause_that_there_is_not_is_named(board):
    with opened(board) as context:
        board.registers[registers.QP_STATE.address] = registers.QP_STATE.pack(state=3, cause=255)
        from stagecoach.host_driver.counters import query_state

        with pytest.raises(DeviceError, match=r"QP 1 has QP_STATE.cause 255; allowed: a Cause"):
            query_state(context, 1)


def test_more_lost_events_than_the_ring_has_are_not_believed(board):
    with opened(board) as context:
        answered = registers.CQ_ANSWERED.pack(entries=257)
        board.registers[registers.CQ_ANSWERED.address] = answered
        message = "CQ 4 has CQ_ANSWERED 257; allowed: at most 256 entries after 0"
        with pytest.raises(DeviceError, match=message):
            context.process_events(ask=True)
        assert context.events == []
        board.registers[registers.CQ_ANSWERED.address] = 0


class EverLost(dict):
    """Registers whose CQ_ANSWERED says at each look that one more entry is lost."""

    looks = 0

    def get(self, address, default=None):  # type: ignore[no-untyped-def]
        if address == registers.CQ_ANSWERED.address:
            self.looks += 1
            return registers.CQ_ANSWERED.pack(entries=self.looks & 0xFFFF)
        return super().get(address, default)


def test_entries_that_are_lost_without_end_do_not_keep_a_call(board):
    context = opened(board)
    cq = CQ(context, 7)
    board.registers = lost = EverLost(board.registers)
    cq._take_entries(ask=True)
    assert lost.looks == cq._ring.entries == 16
    lost.looks = 0
    context.process_events(ask=True)
    assert lost.looks == 256
    cq.close()
    context.close()


def test_the_command_line_tells_it_in_one_line(board, capsys):
    board.registers[registers.QUEUES.address] = registers.QUEUES.pack(qps=65535, cqs=4)
    assert main(["info", "--device", f"serial://{board.port}?baud=115200"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "QUEUES.qps 65535; allowed: a power of two from 2 to 256" in line
