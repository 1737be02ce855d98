"""A passive target learns that its peer was killed.

    python peer_killed.py

The target offers memory and never polls. A second process writes into it, until SIGKILL ends it
in the middle. An event tells the target, which closes the QP, and with it the region.
"""

import os
import signal
import subprocess
import sys
import time

from stagecoach import (
    CQ,
    MR,
    PD,
    QP,
    SGE,
    AccessFlags,
    Context,
    QPInitAttr,
    SendWR,
    SimulatedDevice,
    WROpcode,
    connect,
    listen,
)

SIZE = 65536


def write_for_ever(port: int) -> None:
    """The peer: counts, and writes the number all over the memory of the target."""
    with Context(SimulatedDevice()) as context:
        pd, cq = PD(context), CQ(context)
        qp = QP(pd, QPInitAttr(cq, cq))
        source = MR(pd, SIZE)
        offer = connect(qp, "127.0.0.1", port)
        addr, rkey = int.from_bytes(offer[:8]), int.from_bytes(offer[8:])
        sg = [SGE(source.addr, SIZE, source.lkey)]
        for number in range(1, 1 << 62):
            source.write(number.to_bytes(8) * (SIZE // 8))
            qp.post_send(SendWR(number, WROpcode.RDMA_WRITE, sg, remote_addr=addr, rkey=rkey))
            cq.wait()


def main() -> None:
    with Context(SimulatedDevice()) as context:
        pd, cq = PD(context), CQ(context)
        listener = listen(context)
        peer = subprocess.Popen([sys.executable, __file__, str(listener.port)])
        request = listener.get_request(timeout=60)
        qp = QP(pd, QPInitAttr(cq, cq))
        region = MR(pd, SIZE, AccessFlags.REMOTE_WRITE, qp=qp)
        request.accept(qp, private_data=region.addr.to_bytes(8) + region.rkey.to_bytes(4))
        end = time.monotonic() + 60
        while int.from_bytes(region.read(8)) < 3:
            if time.monotonic() > end:
                sys.exit("the peer did not write within 60 s")
            time.sleep(0.01)
        print("the peer writes; killing it")
        os.kill(peer.pid, signal.SIGKILL)
        peer.wait()
        event = context.get_async_event()
        print(event.describe())
        print("state of the QP:", qp.state.name)
        qp.close()
        print("last number that was written:", int.from_bytes(bytes(region.buf[:8])))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write_for_ever(int(sys.argv[1]))
    else:
        main()
