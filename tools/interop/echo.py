"""The other end of rdma_client and rdma_server of rdmacm-utils: one Send of 16 bytes each way.

`echo.py serve` takes rdma_client, `echo.py connect PORT` asks rdma_server.
"""

import argparse

from stagecoach import CQ, MR, PD, QP, SGE, Context, QPInitAttr, RecvWR, SendWR, connect, listen
from stagecoach.cli.open_device import open_device
from stagecoach.cli.options import add_device

_OCTETS = 16  # of both programs; what is in them, they do not look at
_SECONDS = 60.0


def main() -> None:
    """One connection."""
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    add_device(roles.add_parser("serve"))
    asking = roles.add_parser("connect")
    asking.add_argument("address")
    asking.add_argument("port", type=int)
    asking.add_argument("--revision", type=int, default=2)
    add_device(asking)
    options = parser.parse_args()
    with Context(open_device(options.device)) as context:
        pd, cq = PD(context), CQ(context)
        qp = QP(pd, QPInitAttr(cq, cq))
        came, sent = MR(pd, bytearray(_OCTETS)), MR(pd, bytearray(range(_OCTETS)))
        qp.post_recv(RecvWR(sg=[SGE(came.addr, _OCTETS, came.lkey)]))
        send = SendWR(sg=[SGE(sent.addr, _OCTETS, sent.lkey)])
        if options.role == "serve":
            with listen(context, "") as listener:
                print(f"listening at port {listener.port}", flush=True)
                listener.get_request(_SECONDS).accept(qp)
            _complete(cq, "RECV")
            qp.post_send(send)
            _complete(cq, "SEND")
            qp.disconnect()
        else:
            connect(qp, options.address, options.port, revision=options.revision)
            qp.post_send(send)
            _complete(cq, "SEND")
            _complete(cq, "RECV")


def _complete(cq: CQ, opcode: str) -> None:
    [found] = cq.wait(1, _SECONDS)
    if (found.status.name, found.opcode.name) != ("SUCCESS", opcode):
        raise SystemExit(f"{found.describe()}; expected: {opcode}")
    print(found.describe(), flush=True)


if __name__ == "__main__":
    main()
