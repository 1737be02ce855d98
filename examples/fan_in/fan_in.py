"""Sixteen clients, each a process, send to one server with a shared receive queue; one is killed.

The server waits for completions and for asynchronous events at the same time, with a selector. One
event says that the shared receive queue runs low: the server posts the buffers that it has read,
all together. Another says that a client has gone: the server closes that client's QP, and a
newcomer gets its place. The others notice nothing.
"""

import argparse
import multiprocessing
import selectors
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError, Semaphore, Thread
from typing import NoReturn

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    SRQ,
    WC,
    CompChannel,
    ConnectionListener,
    Context,
    EventType,
    ListenerClosed,
    QPCap,
    QPInitAttr,
    Quota,
    RecvWR,
    SendFlags,
    SendWR,
    SimulatedDevice,
    SRQInitAttr,
    StagecoachError,
    StartupError,
    WCOpcode,
    WCStatus,
    connect,
    listen,
)

CLIENTS = 16
VICTIM = 7  # the client that is killed
NEWCOMER = CLIENTS  # the client that gets its place
BUFFERS = 3 * CLIENTS
LIMIT = 2 * CLIENTS
"""Fewer receives than that are an event. Until the server has taken it, a client sends two messages
at most: one that is under way, and one for an answer that the server is about to give.
"""
MESSAGE = struct.Struct("!II")  # number of the client, number of the message
CAP = QPCap(max_send_wr=4, max_recv_wr=4, max_inline_data=MESSAGE.size)
PATIENCE = 60.0
MOST = 100_000  # messages
PRELOADED = ["stagecoach.sim.build", "stagecoach.gateware.rnic"]
"""What takes longest to import; the processes of the clients begin with it."""


def device() -> SimulatedDevice:
    """A device with memory that is fast, in cycles, so that all takes less time."""
    return SimulatedDevice(read_latency=20, write_latency=10)


def check(good: bool, problem: str) -> None:
    """Raises `StagecoachError` with a problem unless all is good."""
    if not good:
        raise StagecoachError(problem)


# A client


def run_client(number: int, messages: int, port: int, begin: Barrier | None) -> None:
    """A client: a process of its own, with a device of its own."""
    with Context(device()) as context:
        pd, cq = PD(context), CQ(context)
        qp, memory = QP(pd, QPInitAttr(cq, cq, CAP)), MR(pd, MESSAGE.size)
        connect(qp, "127.0.0.1", port, private_data=number.to_bytes(), timeout=PATIENCE)
        if begin is not None:
            begin.wait(PATIENCE)
        for message in range(messages):
            memory.write(MESSAGE.pack(number, message))
            qp.post_recv(RecvWR())  # for the answer
            element = SGE(memory.addr, MESSAGE.size, memory.lkey)
            qp.post_send(SendWR(sg=[element], send_flags=SendFlags.INLINE | SendFlags.SIGNALED))
            for completion in cq.wait(2, PATIENCE):
                check(completion.status == WCStatus.SUCCESS, completion.describe())


def client_process(number: int, *arguments: object) -> None:
    """A client, with errors in one line."""
    try:
        run_client(number, *arguments)  # type: ignore[arg-type]
    except (StagecoachError, OSError, BrokenBarrierError) as error:
        sys.exit(f"client {number}: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


# The server


@dataclass
class Client:
    """A client as the server sees it: its QP, its number, and how many of its messages came."""

    qp: QP
    number: int = -1
    received: int = 0


class Server:
    """The server's end: one SRQ and one CQ for all clients, and a QP for each of them.

    Parameters
    ----------
    context: the open device. told: is called after each message with its client.
    left: is called with each client that has gone, when its QP is free.

    Attributes
    ----------
    clients: those that are there, by the number of their QP. refills: how often the SRQ ran low.
    """

    def __init__(
        self, context: Context, told: Callable[[Client], None], left: Callable[[Client], None]
    ):
        self._context, self._told, self._left = context, told, left
        self._pd, self._channel = PD(context), CompChannel(context)
        self._cq = CQ(context, channel=self._channel)
        self._memory = MR(self._pd, BUFFERS * MESSAGE.size)
        self._srq = SRQ(self._pd, SRQInitAttr(max_wr=BUFFERS))
        self._places = Semaphore(CLIENTS)
        self.clients: dict[int, Client] = {}
        self._read = list(range(BUFFERS))  # buffers whose message was read
        self.refills = 0
        self._refill()

    def _refill(self) -> None:
        """Posts the buffers that were read, and asks for an event when they run low again."""
        size, lkey = MESSAGE.size, self._memory.lkey
        elements = [SGE(self._memory.addr + buffer * size, size, lkey) for buffer in self._read]
        self._srq.post_recv(*map(RecvWR, self._read, ([each] for each in elements)))
        self._srq.modify(srq_limit=LIMIT)
        self._read.clear()

    def accept(self, listener: ConnectionListener) -> None:
        """Takes clients while there are places, in a thread, until the listener is closed."""
        while True:
            self._places.acquire()
            qp = QP(self._pd, QPInitAttr(self._cq, self._cq, CAP, srq=self._srq))
            self.clients[qp.qp_num] = client = Client(qp)
            try:
                request = listener.get_request(PATIENCE)
                client.number = int.from_bytes(request.private_data)
                request.accept(qp)
            except ListenerClosed:
                return
            except StartupError as error:
                print(f"a client did not connect: {error}", file=sys.stderr)
                self._free(client)

    def _free(self, client: Client) -> None:
        """Closes its QP: its place is free."""
        del self.clients[client.qp.qp_num]
        client.qp.close()
        self._places.release()

    def serve(self, done: Callable[[], bool]) -> None:
        """Sleeps until something comes, and takes it, until `done()`."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._context, selectors.EVENT_READ)
            self._cq.req_notify()
            while not done():
                ready = {key.fileobj for key, _ in selector.select(PATIENCE)}
                check(bool(ready), f"nothing came for {PATIENCE} s")
                if self._context in ready:  # before messages are answered
                    self._take_events()
                if self._channel in ready:
                    self._take_notification()

    def _take_notification(self) -> None:
        self._channel.get_cq_event(timeout=0)
        self._cq.req_notify()
        self._take_completions()

    def _take_completions(self) -> None:
        """Takes what is there, and no more: events must not wait until all clients are silent."""
        for completion in self._cq.poll(self._cq.cqe):
            if completion.opcode == WCOpcode.RECV:
                self._take_message(completion)

    def _take_message(self, completion: WC) -> None:
        """Reads and answers it; its buffer is posted when the SRQ runs low."""
        buffer = completion.wr_id
        octets = self._memory.read(MESSAGE.size, buffer * MESSAGE.size)
        self._read.append(buffer)
        if completion.status != WCStatus.SUCCESS:
            return  # a client has gone in the middle of its message
        client = self.clients[completion.qp_num]
        expected = client.number, client.received
        check(MESSAGE.unpack(octets) == expected, f"{octets.hex()} in place of message {expected}")
        client.received += 1
        client.qp.post_send(SendWR())
        self._told(client)

    def _take_events(self) -> None:
        """The SRQ runs low, or a QP has stopped and takes nothing more from it."""
        events = []
        while self._context.events:
            events.append(self._context.get_async_event(timeout=0))
        if any(event.event_type == EventType.SRQ_LIMIT_REACHED for event in events):
            self._refill()
            self.refills += 1
        for event in events:
            if event.event_type == EventType.QP_LAST_WQE_REACHED:
                self._take_completions()  # what its client had sent
                client = self.clients.get(event.qp_num)
                if client is not None:  # else it has gone while it connected
                    self._free(client)
                    self._left(client)


# All together


def run(messages: int) -> bool:
    """The server, and the life of the clients; returns whether no message was lost."""
    processes: dict[int, BaseProcess] = {}
    counts: dict[int, int] = {}  # of the clients that have gone
    fork = multiprocessing.get_context("forkserver")
    fork.set_forkserver_preload(PRELOADED)
    begin = fork.Barrier(CLIENTS)

    def start(number: int, begin: Barrier | None) -> None:
        arguments = number, messages, listener.port, begin
        processes[number] = fork.Process(target=client_process, args=arguments)
        processes[number].start()

    def told(client: Client) -> None:
        if client.number == VICTIM and client.received == messages // 2:
            processes[VICTIM].kill()

    def left(client: Client) -> None:
        counts[client.number] = client.received
        if client.number == VICTIM:
            others = sum(each.received for each in server.clients.values())
            print(f"client {VICTIM} is gone after {client.received} of {messages} messages")
            print(f"the others had sent {others} of {(CLIENTS - 1) * messages}", flush=True)
            start(NEWCOMER, None)
        elif client.received < messages:
            raise StagecoachError(f"client {client.number} has failed")

    with Context(device(), Quota(qps=CLIENTS)) as context:
        server = Server(context, told, left)
        try:
            with listen(context) as listener:
                Thread(target=server.accept, args=(listener,), daemon=True).start()
                for number in range(CLIENTS):
                    start(number, begin)
                server.serve(lambda: len(counts) == CLIENTS + 1)
        finally:
            for process in processes.values():
                process.kill()
                process.join()
    complete = [number for number, count in counts.items() if count == messages]
    print(f"{len(complete)} clients sent all {messages} messages, the newcomer among them")
    print(f"the shared receive queue ran low {server.refills} times")
    return len(complete) == CLIENTS and NEWCOMER in complete


class Parser(argparse.ArgumentParser):
    """Tells of bad options in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all and returns the exit status: 0 if nothing was lost."""
    parser = Parser(prog="fan_in", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--messages", type=int, default=20, metavar="N", help="of each client (default: 20)"
    )
    messages = parser.parse_args(arguments).messages
    if not 2 <= messages <= MOST:
        parser.error(f"messages is {messages}; allowed: 2 to {MOST}")
    try:
        return 0 if run(messages) else 1
    except (StagecoachError, OSError) as error:
        print(f"{parser.prog}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
