"""A server of many clients in one asyncio loop: requests and answers are Sends.

    python asyncio_server.py serve --port 7000
    python asyncio_server.py ask 127.0.0.1:7000 2+3 4*5

A request is a small sum in text, the answer its result. Without arguments, the program plays the
server and three clients, all in one loop.
"""

import argparse
import asyncio
import operator
import re
import sys

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    ConnectionListener,
    ConnectionRequest,
    Context,
    ListenerClosed,
    QPInitAttr,
    RecvWR,
    SendWR,
    SimulatedDevice,
    StagecoachError,
    StartupError,
    WCOpcode,
    WCStatus,
    accept_connection,
    listen,
    open_connection,
)

SIZE = 64
PATIENCE = 10.0  # seconds for an answer
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class End:
    """One end of a connection: a QP, and room for one message in each direction."""

    def __init__(self, context: Context) -> None:
        self.pd = PD(context)
        self.cq = CQ(context, 256)
        self.qp = QP(self.pd, QPInitAttr(self.cq, self.cq))
        self.memory = MR(self.pd, 2 * SIZE)
        self.completions = self.cq.stream()
        self.receive()

    def receive(self) -> None:
        """Posts the receive for the next message."""
        self.qp.post_recv(RecvWR(sg=[SGE(self.memory.addr + SIZE, SIZE, self.memory.lkey)]))

    def send(self, text: str) -> None:
        """Sends a message."""
        data = text.encode()
        if len(data) > SIZE:
            raise ValueError(f"{text!r} has {len(data)} bytes; allowed: at most {SIZE}")
        self.memory.write(data)
        self.qp.post_send(SendWR(sg=[SGE(self.memory.addr, len(data), self.memory.lkey)]))

    async def message(self) -> str | None:
        """The next message, None if the peer has gone."""
        async for wc in self.completions:
            if wc.status != WCStatus.SUCCESS:
                return None
            if wc.opcode == WCOpcode.RECV:
                text = self.memory.read(wc.byte_len, SIZE).decode(errors="replace")
                self.receive()
                return text
        return None

    def close(self) -> None:
        """Ends the connection."""
        self.qp.close()
        self.cq.close()
        self.pd.close()


def answer(text: str) -> str:
    """The result of a sum."""
    found = re.fullmatch(r"\s*(\d{1,9})\s*([-+*])\s*(\d{1,9})\s*", text)
    if not found:
        return "error: a sum is two numbers with +, - or * between them"
    left, sign, right = found.groups()
    return str(OPERATORS[sign](int(left), int(right)))


async def serve_one(context: Context, request: ConnectionRequest) -> None:
    """Answers one client until it goes."""
    try:
        end = End(context)
    except StagecoachError as error:  # more clients than the device has QPs
        request.close()
        print(error, file=sys.stderr)
        return
    try:
        await accept_connection(request, end.qp)
        while (text := await end.message()) is not None:
            end.send(answer(text))
    except StartupError as error:
        print(error, file=sys.stderr)
    finally:
        end.close()


async def serve(context: Context, listener: ConnectionListener) -> None:
    """Takes clients, until it is cancelled or the listener is closed."""
    async with asyncio.TaskGroup() as clients:
        while True:
            try:
                request = await listener.accept()
            except ListenerClosed:
                return
            except StartupError as error:  # what connected speaks no MPA, or went away
                print(error, file=sys.stderr)
                continue
            clients.create_task(serve_one(context, request))


async def ask(
    context: Context, host: str, port: int, sums: list[str], patience: float = PATIENCE
) -> list[str]:
    """A client: the results of some sums, one after the other.

    Raises `ConnectionError` if the server goes, `TimeoutError` after `patience` seconds.
    """
    end = End(context)
    try:
        await open_connection(end.qp, host, port)
        answers = []
        for text in sums:
            end.send(text)
            try:
                result = await asyncio.wait_for(end.message(), patience)
            except TimeoutError:
                raise TimeoutError(f"no answer to {text!r} within {patience:g} s") from None
            if result is None:
                raise ConnectionError("the server has gone")
            answers.append(result)
        return answers
    finally:
        end.close()


async def all_in_one() -> None:
    """A server and three clients."""
    with Context(SimulatedDevice()) as there, Context(SimulatedDevice()) as here:
        with listen(there) as listener:
            server = asyncio.create_task(serve(there, listener))
            talks = [
                ask(here, "127.0.0.1", listener.port, [f"{n}+1", f"{n}*{n}"]) for n in range(3)
            ]
            for answers in await asyncio.gather(*talks):
                print(*answers)
            server.cancel()
            await asyncio.gather(server, return_exceptions=True)


async def serve_for_ever(port: int) -> None:
    """The server alone."""
    with Context(SimulatedDevice()) as context, listen(context, port=port) as listener:
        print(f"serving on port {listener.port}", flush=True)
        await serve(context, listener)


async def ask_alone(server: tuple[str, int], sums: list[str]) -> None:
    """A client alone."""
    with Context(SimulatedDevice()) as context:
        print(*await ask(context, *server, sums), sep="\n")


def address(text: str) -> tuple[str, int]:
    """HOST:PORT of a command line."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a host and a port, as 127.0.0.1:7700")
    return host, int(port)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("serve").add_argument("--port", type=int, default=0)
    command = commands.add_parser("ask")
    command.add_argument("server", type=address, metavar="HOST:PORT")
    command.add_argument("sums", nargs="+")
    options = parser.parse_args()
    try:
        if options.command == "serve":
            asyncio.run(serve_for_ever(options.port))
        elif options.command == "ask":
            asyncio.run(ask_alone(options.server, options.sums))
        else:
            asyncio.run(all_in_one())
    except KeyboardInterrupt:
        pass
    except (StagecoachError, OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
