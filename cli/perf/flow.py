"""Messages of one end over its QPs, as many outstanding as the queue depth allows."""

from collections import Counter
from collections.abc import Callable, Sequence

from stagecoach.cli.perf.end import End
from stagecoach.host_driver.enums import WCOpcode
from stagecoach.host_driver.wr import SendWR


def run(
    end: End,
    requests: Sequence[SendWR],
    messages: int,
    depth: int,
    progress: Callable[[int], None] = lambda count: None,
    receives: int = 0,
) -> int:
    """Sends messages over all measured QPs, by turns; returns the cycles that it took.

    Parameters
    ----------
    requests: one for each QP. depth: most outstanding on each. progress: called with how many were
        completed since the last call. receives: messages of the peer that come meanwhile and
        complete receives; they are waited for, too.

    They go from the first doorbell to the interrupt of the last completion. Raises as
    `End.completions`.
    """
    qps = {qp.qp_num: (qp, each) for qp, each in zip(end.qps, requests, strict=True)}
    least, more = divmod(messages, len(qps))
    left = {number: least + (place < more) for place, number in enumerate(qps)}
    free = dict.fromkeys(qps, depth)
    start = end.cycles
    done = 0
    while True:
        for number, (qp, request) in qps.items():
            if count := min(free[number], left[number]):
                qp.post_send(*[request] * count)
                free[number] -= count
                left[number] -= count
        if done == messages and receives == 0:
            return end.cycles - start
        completed = end.completions()
        found = Counter(each.qp_num for each in completed if each.opcode != WCOpcode.RECV)
        for number, count in found.items():
            free[number] += count
        done += found.total()
        receives -= len(completed) - found.total()
        progress(found.total())
