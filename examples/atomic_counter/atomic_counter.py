"""Two processes count with atomics in the memory of a third one, and lose nothing (RFC 7306).

The server owns three words: a lock, a counter, and a plain number. Each client increments

* the counter by FetchAdd, with many outstanding on many QPs,
* the number by RDMA Read and RDMA Write, which are not atomic, while it holds the lock.

Client 0 adds 1 and client 1 adds 2^32, so each word tells whose increments are in it.
"""

import argparse
import multiprocessing
import struct
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from typing import Any, NamedTuple, NoReturn

import numpy as np

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPCap,
    QPInitAttr,
    SendFlags,
    SendWR,
    SimulatedDevice,
    StagecoachError,
    WCStatus,
    WROpcode,
    connect,
    listen,
)

CLIENTS = 2
AMOUNTS = (1, 1 << 32)
QPS = 16  # of a client, for FetchAdds; one more is for the lock
BATCH = 16  # FetchAdds with one doorbell and one completion
BATCHES = 2  # outstanding on a QP
PATIENCE = 60.0
MOST = 1 << 24  # increments

LOCK, COUNTER, NUMBER = range(3)
FREE = 0  # the lock; else the id of the client that holds it
UNSIGNALED = SendFlags(0)
END = object()


class Job(NamedTuple):
    """What all have to do: increments of the counter and of the number, by all clients."""

    counted: int
    locked: int

    def share(self, client: int) -> "Job":
        """The part of a client."""
        return Job(*(total // CLIENTS + (client < total % CLIENTS) for total in self))


class Target(NamedTuple):
    """The server's memory: the words, and where clients report what their FetchAdds returned."""

    words: int
    words_rkey: int
    originals: int
    originals_rkey: int


TARGET = struct.Struct("!QIQI")


def halves(word: np.uint64) -> list[int]:
    """The increments of each client that are in a word."""
    return [int(word) & 0xFFFFFFFF, int(word) >> 32]


def device() -> SimulatedDevice:
    """A device with memory that is fast, in cycles, so that all takes less time."""
    return SimulatedDevice(read_latency=20, write_latency=10, progress=show)


def show(text: str) -> None:
    """Shows what goes on in one line of the terminal, if there is one."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def check(good: bool, problem: str) -> None:
    """Raises `StagecoachError` with a problem unless all is good."""
    if not good:
        raise StagecoachError(problem)


# The client

Task = Generator[None, None, None]
"""Work on one QP: each `yield` waits for its next completion."""


def run(cq: CQ, tasks: dict[QP, Task]) -> None:
    """Runs tasks to their ends, all at once."""
    by_number = {qp.qp_num: task for qp, task in tasks.items() if next(task, END) is not END}
    while by_number:
        (found,) = cq.wait(1, PATIENCE)
        check(found.status == WCStatus.SUCCESS, found.describe())
        if next(by_number[found.qp_num], END) is END:
            del by_number[found.qp_num]


def fetch_adds(target: Target, amount: int, originals: MR) -> Iterator[SendWR]:
    """As many FetchAdds as `originals` has places for what they return."""
    for place in range(originals.addr, originals.addr + originals.length, 8):
        yield SendWR(
            opcode=WROpcode.ATOMIC_FETCH_AND_ADD,
            sg=[SGE(place, 8, originals.lkey)],
            remote_addr=target.words + 8 * COUNTER,
            rkey=target.words_rkey,
            compare_add=amount,
            send_flags=UNSIGNALED,
        )


def count(qp: QP, requests: Iterator[SendWR]) -> Task:
    """Increments the counter, as long as there are requests; other tasks take of them, too."""
    outstanding = 0
    while batch := list(islice(requests, BATCH)):
        batch[-1] = replace(batch[-1], send_flags=SendFlags.SIGNALED)
        qp.post_send(*batch)
        outstanding += 1
        if outstanding == BATCHES:
            yield
            outstanding -= 1
    for _ in range(outstanding):
        yield


def add_under_lock(qp: QP, target: Target, amount: int, times: int, me: int) -> Task:
    """Increments the plain number, each time under the lock."""
    answers = np.zeros(4, np.uint64)
    mr = MR(qp.pd, answers)

    def request(opcode: WROpcode, word: int, answer: int, **fields: Any) -> SendWR:
        element = SGE(mr.addr + 8 * answer, 8, mr.lkey)
        at = target.words + 8 * word
        return SendWR(0, opcode, [element], remote_addr=at, rkey=target.words_rkey, **fields)

    def swap_if(compare: int, swap: int, flags: SendFlags) -> SendWR:
        opcode = WROpcode.ATOMIC_CMP_AND_SWP
        return request(opcode, LOCK, 0, compare_add=compare, swap=swap, send_flags=flags)

    acquire = swap_if(FREE, me, SendFlags.SIGNALED)
    read = request(WROpcode.RDMA_READ, NUMBER, 1)
    # A Write that completes need not be placed, and an atomic after it does not wait for that (RFC
    # 7306, 7). When the written word is read back, it is placed (RFC 5040, 5.5 item 12): the
    # release is fenced, so it begins when the Read is complete.
    release = [
        request(WROpcode.RDMA_WRITE, NUMBER, 2, send_flags=UNSIGNALED),
        request(WROpcode.RDMA_READ, NUMBER, 3, send_flags=UNSIGNALED),
        swap_if(me, FREE, SendFlags.SIGNALED | SendFlags.FENCE),
    ]
    for _ in range(times):
        answers[0] = me
        while answers[0] != FREE:
            qp.post_send(acquire)
            yield
        qp.post_send(read)
        yield
        answers[2] = answers[1] + np.uint64(amount)
        qp.post_send(*release)
        yield
        check(answers[0] == me, f"client {me - 1} released the lock of id {answers[0]}")


def report(qp: QP, target: Target, originals: MR, start: int) -> Task:
    """Writes what the FetchAdds returned to the server; it is there when the Read completes."""
    place, rkey = target.originals + 8 * start, target.originals_rkey
    for opcode, octets in ((WROpcode.RDMA_WRITE, originals.length), (WROpcode.RDMA_READ, 8)):
        element = SGE(originals.addr, octets, originals.lkey)
        qp.post_send(SendWR(0, opcode, [element], remote_addr=place, rkey=rkey))
        yield


def run_client(client: int, job: Job, port: int, begin: Barrier) -> None:
    """A client: a process of its own, with a device of its own."""
    share = job.share(client)
    with Context(device()) as context:
        pd, cq = PD(context), CQ(context)
        cap = QPCap(max_send_wr=BATCHES * BATCH, max_recv_wr=1)
        qps = [QP(pd, QPInitAttr(cq, cq, cap, rfc7306=True)) for _ in range(QPS + 1)]
        for qp in qps:
            target = Target(*TARGET.unpack(connect(qp, "127.0.0.1", port)))
        originals = np.zeros(share.counted, np.uint64)
        mr = MR(pd, originals)
        begin.wait(PATIENCE)

        amount, (first, *others) = AMOUNTS[client], qps
        requests = fetch_adds(target, amount, mr)
        tasks = {qp: count(qp, requests) for qp in others}
        tasks[first] = add_under_lock(first, target, amount, share.locked, 1 + client)
        run(cq, tasks)
        run(cq, {first: report(first, target, mr, job.share(0).counted if client else 0)})


def client_process(client: int, *arguments: object) -> None:
    """A client, with errors in one line."""
    try:
        run_client(client, *arguments)  # type: ignore[arg-type]
    except (StagecoachError, OSError, BrokenBarrierError) as error:
        sys.exit(f"client {client}: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


# The server


def tell(what: str, right: bool) -> bool:
    """Prints a line with its judgement, and returns that."""
    print(f"{what}: {'right' if right else 'WRONG'}", flush=True)
    return right


def verdict(job: Job, words: np.ndarray, originals: np.ndarray) -> bool:
    """Prints both numbers, and whether they are what was asked for; returns the latter."""
    shares = [job.share(client) for client in range(CLIENTS)]
    good = [tell(f"lock: {words[LOCK]}, free is {FREE}", words[LOCK] == FREE)]
    for name, word, asked in (
        ("counter", COUNTER, [share.counted for share in shares]),
        ("number", NUMBER, [share.locked for share in shares]),
    ):
        found, text = halves(words[word]), " + ".join(map(str, asked))
        good.append(tell(f"{name}: {found[0]} + {found[1]}, asked for {text}", found == asked))
    different = len(np.unique(originals))
    text = f"FetchAdd returned {different} different values in {job.counted} operations"
    return all([*good, tell(text, different == job.counted)])


def serve(job: Job) -> bool:
    """The server; returns whether nothing was lost."""
    words = np.zeros(3, np.uint64)
    originals = np.zeros(job.counted, np.uint64)
    processes: list[BaseProcess] = []
    with Context(device()) as context:
        pd, cq = PD(context), CQ(context)
        words_mr = MR(pd, words, AccessFlags.REMOTE_ATOMIC)
        originals_mr = MR(pd, originals, AccessFlags.REMOTE_WRITE | AccessFlags.REMOTE_READ)
        target = TARGET.pack(words_mr.addr, words_mr.rkey, originals_mr.addr, originals_mr.rkey)
        spawn = multiprocessing.get_context("spawn")
        try:
            with listen(context) as listener:
                begin = spawn.Barrier(CLIENTS)
                for client in range(CLIENTS):
                    arguments = (client, job, listener.port, begin)
                    processes.append(spawn.Process(target=client_process, args=arguments))
                    processes[-1].start()
                # A QP is open as long as the program keeps it.
                qps = [QP(pd, QPInitAttr(cq, cq, rfc7306=True)) for _ in range(CLIENTS * (QPS + 1))]
                for qp in qps:
                    listener.get_request(PATIENCE).accept(qp, private_data=target)
            # The server has nothing else to do: its device does it all.
            while any(process.is_alive() for process in processes):
                check(not any(each.exitcode for each in processes), "a client has failed")
                done = sum(halves(words[COUNTER]) + halves(words[NUMBER]))
                show(f"increments: {done} of {sum(job)}")
                time.sleep(0.1)
            check(not any(each.exitcode for each in processes), "a client has failed")
        finally:
            for process in processes:
                process.terminate()
                process.join()
            show("")
    return verdict(job, words, originals)


class Parser(argparse.ArgumentParser):
    """Tells of bad options in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all and returns the exit status: 0 if nothing was lost."""
    parser = Parser(prog="atomic_counter", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--increments",
        type=int,
        default=1000,
        metavar="N",
        help="of both clients, of both numbers (default: 1000)",
    )
    parser.add_argument(
        "--locked",
        type=int,
        metavar="N",
        help="of these, under the lock (default: one in 200)",
    )
    options = parser.parse_args(arguments)
    total = options.increments
    if not 4 <= total <= MOST:
        parser.error(f"increments is {total}; allowed: 4 to {MOST}")
    locked = max(2, total // 200) if options.locked is None else options.locked
    if not 2 <= locked <= total - 2:
        parser.error(f"locked is {locked}; allowed: 2 to {total - 2}, 2 less than increments")
    try:
        good = serve(Job(total - locked, locked))
    except (StagecoachError, OSError) as error:
        show("")
        print(f"{parser.prog}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
