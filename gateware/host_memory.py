"""Ports to host memory, which the engines of `dma` serve, and the layouts of what they carry."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

WORD = data.StructLayout({"data": 64, "last": 1})
"""A 64-bit word at its host address: the lanes outside the command's bytes are meaningless."""


READ_WORD = data.StructLayout({"data": 64, "last": 1, "error": 1})
"""As `WORD`, from host memory; `error` if the AXI response of this word was not OKAY."""


PAYLOAD_BEAT = data.StructLayout({"data": 64, "octets": 4, "last": 1, "error": 1})
"""As `BEAT`; `error`, on the last beat, if any byte of it could not be read."""


MEMORY_COMMAND = data.StructLayout({"address": 64, "octets": 17})
"""A read or write of 1 to 65535 bytes of host memory at any alignment."""


class ReadClient(wiring.Signature):
    """A client's side of `dma/read.py`: commands go out, words come back in command order."""

    def __init__(self) -> None:
        super().__init__(
            {
                "command": Out(stream.Signature(MEMORY_COMMAND)),
                "data": In(stream.Signature(READ_WORD)),  # last: of the command
            }
        )


class WriteClient(wiring.Signature):
    """A client's side of `dma/write.py`: a command and its words, none taken before the command.

    `done` pulses once a command, in their order, when every write response is there; `error`
    with it if one of them was not OKAY.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "command": Out(stream.Signature(MEMORY_COMMAND)),
                "data": Out(stream.Signature(WORD)),  # last: of the command
                "done": In(1),
                "error": In(1),
            }
        )
