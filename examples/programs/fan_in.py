"""Sixteen clients send measurements to one server, which has one shared receive queue for all.

    python fan_in.py

An event says when the queue runs low. Then the buffers that were read are posted again together.
"""

import struct
import threading
from collections import Counter

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    SRQ,
    AsyncEvent,
    Context,
    EventType,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendFlags,
    SendWR,
    SimulatedDevice,
    SRQInitAttr,
    WCOpcode,
    WCStatus,
    connect,
    listen,
)

CLIENTS = 16
MESSAGES = 20  # of each client
BUFFERS = 48
LIMIT = 24
WINDOW = 1  # Sends that a client has under way: CLIENTS * WINDOW must not be more than LIMIT
MESSAGE = struct.Struct("!II")  # number of the client, measurement


class Server:
    """Adds up what comes."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.pd = PD(context)
        self.cq = CQ(context)
        self.buffers = MR(self.pd, BUFFERS * MESSAGE.size)
        self.srq = SRQ(self.pd, SRQInitAttr(max_wr=BUFFERS))
        self.free: list[int] = list(range(BUFFERS))
        self.lock = threading.Lock()
        self.qps: dict[int, QP] = {}
        self.sums: Counter[int] = Counter()
        self.refills = 0
        self.refill()
        context.add_event_handler(self.event)
        self.listener = listen(context)

    def refill(self) -> None:
        """Posts the buffers that are free, and asks to be told when they run low."""
        with self.lock:
            free, self.free = self.free, []
        size = MESSAGE.size
        self.srq.post_recv(
            *(RecvWR(n, [SGE(self.buffers.addr + n * size, size, self.buffers.lkey)]) for n in free)
        )
        self.srq.modify(srq_limit=LIMIT)

    def event(self, event: AsyncEvent) -> None:
        """In a thread of the driver."""
        if event.event_type == EventType.SRQ_LIMIT_REACHED:
            self.refills += 1
            self.refill()

    def accept(self) -> None:
        """Takes all clients."""
        for _ in range(CLIENTS):
            request = self.listener.get_request()
            qp = QP(self.pd, QPInitAttr(self.cq, self.cq, srq=self.srq))
            self.qps[qp.qp_num] = qp
            request.accept(qp)

    def run(self) -> None:
        """Takes all messages, and answers each with an empty Send: a credit."""
        left = CLIENTS * MESSAGES
        while left:
            for wc in self.cq.wait():
                if wc.opcode != WCOpcode.RECV:
                    continue
                assert wc.status == WCStatus.SUCCESS, wc.describe()
                data = self.buffers.read(wc.byte_len, wc.wr_id * MESSAGE.size)
                client, value = MESSAGE.unpack(data)
                self.sums[client] += value
                with self.lock:
                    self.free.append(wc.wr_id)
                self.qps[wc.qp_num].post_send(SendWR(send_flags=SendFlags(0)))
                left -= 1


def client(context: Context, number: int, port: int) -> None:
    """Sends its measurements: the next one when the last one was answered."""
    pd, cq = PD(context), CQ(context, 256)
    qp = QP(pd, QPInitAttr(cq, cq, QPCap(max_inline_data=MESSAGE.size)))
    memory = MR(pd, MESSAGE.size)
    qp.post_recv(RecvWR())
    connect(qp, "127.0.0.1", port)
    for value in range(MESSAGES):
        memory.write(MESSAGE.pack(number, value))
        sg = [SGE(memory.addr, memory.length, memory.lkey)]
        qp.post_send(SendWR(sg=sg, send_flags=SendFlags.INLINE))
        (credit,) = cq.wait()
        assert credit.status == WCStatus.SUCCESS, credit.describe()
        qp.post_recv(RecvWR())


def main() -> None:
    with Context(SimulatedDevice()) as there, Context(SimulatedDevice()) as here:
        server = Server(there)
        accepting = threading.Thread(target=server.accept)
        accepting.start()
        clients = [
            threading.Thread(target=client, args=(here, number, server.listener.port))
            for number in range(CLIENTS)
        ]
        for thread in clients:
            thread.start()
        accepting.join()
        server.run()
        for thread in clients:
            thread.join()
        print(f"{sum(server.sums.values())} from {len(server.sums)} clients")
        print(f"the queue ran low {server.refills} times")


if __name__ == "__main__":
    main()
