"""What a server says of connections that did not end as they should."""

import logging
from types import SimpleNamespace

from stagecoach.host_driver.events import AsyncEvent
from stagecoach.host_driver.stream_end import StreamEnd
from stagecoach.hw.interface.causes import Cause
from stagecoach.ulp.nfs.server.ends import tell_ends


def context(*causes: Cause) -> SimpleNamespace:
    return SimpleNamespace(events=[AsyncEvent(3, cause, 0, 0, b"") for cause in causes])


def told(caplog, *contexts: SimpleNamespace) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        tell_ends(contexts)
    assert not any(each.events for each in contexts)
    return [record.getMessage() for record in caplog.records]


def test_orderly_ends_are_not_worth_a_line(caplog):
    assert told(caplog, context(Cause.LLP_CLOSED, Cause.STOPPED_BY_DRIVER), context()) == []


def test_a_stream_that_ends_inside_an_fpdu_is_told(caplog):
    line = "a connection over RDMA failed: connection closed or lost inside an FPDU"
    assert told(caplog, context(Cause.LLP_CLOSED, Cause.LLP_CLOSED_INSIDE_FPDU)) == [
        f"{line} (layer 2, type 0, code 0x01)"
    ]


def test_a_connection_that_is_reset_or_times_out_is_told(caplog):
    ends = SimpleNamespace(
        events=[
            AsyncEvent(3, Cause.LLP_CLOSED, 0, 0, b"", stream_end=how)
            for how in (StreamEnd.RESET, StreamEnd.TIMED_OUT, StreamEnd.CLOSED, StreamEnd.RESET)
        ]
    )
    assert told(caplog, ends) == [
        "2 connections over RDMA failed: connection closed or lost: the peer reset the connection "
        "(layer 2, type 0, code 0x01)",
        "a connection over RDMA failed: connection closed or lost: the connection timed out, "
        "the peer acknowledges nothing (layer 2, type 0, code 0x01)",
    ]


def test_each_cause_has_one_line_however_many_it_ended(caplog):
    many = [Cause.CRC_ERROR, Cause.LLP_CLOSED_INSIDE_FPDU] * 500
    assert [line.split(":")[0] for line in told(caplog, context(*many), context(*many))] == [
        "1000 connections over RDMA failed"
    ] * 2
