"""The port to the STag table."""

from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from stagecoach.gateware.layouts import Layouts


class StagClient(wiring.Signature):
    """A client's side of `stag/table.py`: one request at a time, one response pulse for it."""

    def __init__(self, layouts: Layouts) -> None:
        super().__init__(
            {
                "request": Out(stream.Signature(layouts.stag_request)),
                "response_valid": In(1),
                "response": In(layouts.stag_response),
            }
        )
