"""What has the wrong type is named, with what is allowed; integers of numpy are integers."""

import math
import mmap
import re

import numpy as np
import pytest

from stagecoach.host_driver import (
    CQ,
    MR,
    QP,
    SRQ,
    CompChannel,
    FastMR,
    QPCap,
    QPInitAttr,
    RecvWR,
    SRQInitAttr,
    connect,
)

QUEUE = "the number of entries of a queue is"
BUFFER = "a writable, C-contiguous buffer of at least one byte, or a number of bytes"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda verbs: CQ(verbs.context, 1.5), f"{QUEUE} 1.5; allowed: an integer"),
        (lambda verbs: SRQInitAttr(max_wr=1.5), f"{QUEUE} 1.5; allowed: an integer"),
        (
            lambda verbs: SRQInitAttr(max_sge=1.5),
            "SRQInitAttr.max_sge is 1.5; allowed: an integer",
        ),
        (lambda verbs: QPCap(max_send_wr="a"), f"{QUEUE} 'a'; allowed: an integer"),
        (lambda verbs: QPCap(max_recv_wr=None), f"{QUEUE} None; allowed: an integer"),
        (
            lambda verbs: QPCap(max_inline_data=1.5),
            "QPCap.max_inline_data is 1.5; allowed: an integer",
        ),
        (lambda verbs: QPInitAttr(verbs.cq, verbs.cq, 5), "cap is a int; allowed: QPCap"),
        (lambda verbs: QPInitAttr(verbs.cq, verbs.cq, {}), "cap is a dict; allowed: QPCap"),
        (
            lambda verbs: connect(verbs.qp, "127.0.0.1", "80"),
            "port is '80'; allowed: an integer",
        ),
        (lambda verbs: MR(verbs.pd, 8.0), f"buffer is 8.0; allowed: {BUFFER}"),
        (lambda verbs: MR(verbs.pd, "abc"), f"buffer is 'abc'; allowed: {BUFFER}"),
        (lambda verbs: MR(verbs.pd, True), f"buffer is True; allowed: {BUFFER}"),
        (lambda verbs: FastMR(verbs.pd, None), f"buffer is None; allowed: {BUFFER}"),
        (lambda verbs: verbs.cq.poll(None), "num_entries is None; allowed: an integer"),
        (
            lambda verbs: verbs.cq.wait(1, None),
            "timeout is None; allowed: a number of seconds",
        ),
        (
            lambda verbs: verbs.context.get_async_event(None),
            "timeout is None; allowed: a number of seconds",
        ),
        (
            lambda verbs: MR(verbs.pd, 8).write("text"),
            "data is 'text'; allowed: a C-contiguous buffer, as bytes are",
        ),
        (
            lambda verbs: MR(verbs.pd, 8).write(memoryview(b"0123")[::2]),
            "data is <memory>; allowed: a C-contiguous buffer, as bytes are",
        ),
        (
            lambda verbs: verbs.srq.post_recv([RecvWR()]),
            "request is a list; allowed: RecvWR, those of a sequence with * before it",
        ),
    ],
)
def test_a_wrong_type_is_named(verbs, call, text):
    verbs.srq = SRQ(verbs.pd, SRQInitAttr(4))
    before = repr(verbs.context)
    pattern = re.escape(text).replace("<memory>", "<memory at 0x[0-9a-f]+>")
    with pytest.raises(TypeError, match=f"^{pattern}$"):
        call(verbs)
    assert repr(verbs.context) == before, "nothing of it stays"


@pytest.mark.parametrize("timeout", [-1, -0.5, math.nan, -math.inf])
@pytest.mark.parametrize(
    "wait",
    [
        lambda verbs, timeout: verbs.cq.wait(1, timeout),
        lambda verbs, timeout: verbs.cq.wait_event(timeout),
        lambda verbs, timeout: verbs.context.get_async_event(timeout),
        lambda verbs, timeout: verbs.context.poll_until(lambda: False, timeout, "nothing"),
        lambda verbs, timeout: CompChannel(verbs.context).get_cq_event(timeout=timeout),
    ],
)
def test_a_wait_of_less_than_no_time_is_refused(verbs, wait, timeout):
    verbs.cq.req_notify()
    text = f"timeout is {timeout} s; allowed: 0 or more, math.inf to wait for ever"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        wait(verbs, timeout)


def test_integers_of_numpy_are_integers(verbs):
    cq = CQ(verbs.context, np.int16(32767), overcommit=True)
    assert cq.cqe == 32767
    cap = QPCap(max_send_wr=np.int64(3), max_recv_wr=np.int64(3), max_inline_data=np.int64(8))
    qp = QP(verbs.pd, QPInitAttr(cq, cq, cap))
    assert qp.post_recv(RecvWR()) is None
    assert MR(verbs.pd, np.int64(8)).read() == bytes(8)


def test_a_file_that_may_not_be_written_is_refused_and_can_be_closed(verbs, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"0123")
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory,
        pytest.raises(
            TypeError, match="cannot register mmap: read-only True, C-contiguous True, 4"
        ),
    ):
        MR(verbs.pd, memory)
    assert memory.closed
