"""A board with a NIC in simulation: a pseudo-terminal at its UART, a wire at its Ethernet port.

`python -m stagecoach.sim.nic_board WIRE` starts one, prints how to name it in `--device`, and runs
until interrupted. Its memory is one of the simulation, without a controller.
"""

import argparse
import contextlib
import json
import os
import selectors
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stagecoach.gateware.config import RnicConfig
from stagecoach.hw.cached_verilog import cached_verilog
from stagecoach.hw.interface.sizes import MTU
from stagecoach.sim.board import (
    BAUD,
    CLOCK_HZ,
    QUIET_CYCLES,
    RUNTIME,
    TOP,
    SimulatedBoard,
    verilator_arguments,
)
from stagecoach.sim.build import Parts, compile_parts
from stagecoach.sim.network.channel import Channel
from stagecoach.sim.wire.address import FORMS, Attachment, parse_attachment
from stagecoach.sim.wire.errors import WireAddressError, WireError
from stagecoach.sim.wire.wire import End, open_end

PARTS = Parts((), (RUNTIME, RUNTIME / "nic"), "board")

CONFIG = RnicConfig(qps=4, cqs=4, stags=16, prefetch_lanes=2, answers=True)
"""Of the simulated device; a small one is built and simulated sooner."""

MEMORY_LOG2 = 23
"""Of the bytes of the board's memory."""

RETRY_SECONDS = 0.001
"""Until a frame is tried again that the wire did not take."""


def build_nic_board(
    config: RnicConfig = CONFIG, progress: Callable[[str], None] | None = None
) -> Path:
    """Return the program that simulates such a board, built if it is not in the cache."""

    def component() -> Any:
        from stagecoach.gateware.hostlink.serial_nic import SerialNic

        return SerialNic(config, CLOCK_HZ, BAUD, MEMORY_LOG2)

    key = f"{config!r} {CLOCK_HZ} {BAUD} {MEMORY_LOG2}"
    verilog = cached_verilog(key, component, TOP, progress)
    return compile_parts(verilog, PARTS, verilator_arguments(), progress=progress)


class _Plug:
    """Carries frames between a board and a wire, in a thread of its own."""

    def __init__(self, channel: Channel, end: End):
        self._channel = channel
        self._end = end
        self._unsent: deque[bytes] = deque()
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="wire of a board", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(WireError):  # nobody is at the other end any more
            while self._wait():
                self._carry()

    def _wait(self) -> bool:
        """Waits for something to carry; whether there may be anything any more."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._channel.full else 0)
            selector.register(self._channel.fileno(), events)
            if self._end.fileno() >= 0:
                selector.register(self._end.fileno(), selectors.EVENT_READ)
            found = selector.select(RETRY_SECONDS if self._unsent else None)
        return all(key.fd != self._wake_read for key, _ in found)

    def _carry(self) -> None:
        self._channel.flush()
        while (frame := self._channel.receive()) is not None:
            self._unsent.append(frame)
        while self._unsent and (not self._end.connected or self._end.send(self._unsent[0])):
            self._unsent.popleft()  # without a peer frames are lost
        while not self._channel.full and (frame := self._end.receive()) is not None:
            self._channel.send(frame)

    def close(self) -> None:
        os.write(self._wake_write, b"\0")
        self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._channel.close()
        self._end.close()


class SimulatedNicBoard(SimulatedBoard):
    """A running board with a NIC.

    Parameters
    ----------
    wire: the end of a wire, such as `pair:name` (sim/wire).
    program: what `build_nic_board` returned; `None`: it is called.
    fault_rate, seed: of the serial line, as those of `SimulatedBoard`.

    Raises `WireError` if the wire cannot be opened.
    """

    def __init__(
        self,
        wire: str | Attachment,
        program: Path | None = None,
        *,
        fault_rate: int = 0,
        seed: int = 1,
    ):
        attachment = parse_attachment(wire) if isinstance(wire, str) else wire
        program = build_nic_board() if program is None else program
        self._plug: _Plug | None = None
        channel, end = Channel(), open_end(attachment, MTU)
        given = channel.give_away()
        try:
            super().__init__(
                program,
                fault_rate=fault_rate,
                seed=seed,
                quiet_cycles=QUIET_CYCLES,
                more=(MEMORY_LOG2, given),
                descriptors=(given,),
            )
        except BaseException:
            channel.close()
            end.close()
            raise
        finally:
            os.close(given)
        self._plug = _Plug(channel, end)

    def close(self) -> None:
        """Ends the board, then its wire. May be called again."""
        super().close()
        if self._plug is not None:
            self._plug.close()
            self._plug = None


def main(arguments: list[str] | None = None) -> int:
    """Runs a board until it is interrupted, or until it ends; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m stagecoach.sim.nic_board", description=__doc__)
    parser.add_argument("wire", metavar="WIRE", help=FORMS)
    options = parser.parse_args(arguments)
    program = build_nic_board(progress=lambda step: print(step, file=sys.stderr))
    try:
        with SimulatedNicBoard(options.wire, program) as board:
            print(f"{board.url}&ip=192.0.2.10/24", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                board.process.wait()
    except (WireAddressError, WireError) as error:
        parser.error(str(error))
    print(json.dumps(board.counters))
    return 0


if __name__ == "__main__":
    sys.exit(main())
