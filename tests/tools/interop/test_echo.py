"""The other end of rdma_client, rdma_server and ucmatose, with itself."""

from contextlib import contextmanager

import pytest

from tools.interop import host
from tools.interop.job import JobError
from tools.interop.messages import ECHO


@contextmanager
def ends(folder, serving=(), asking=()):
    """A server and a client of it that run."""
    server = host.start("serve", *serving, folder=folder, program=ECHO)
    try:
        port = server.wait_for("listening at port").split()[-1]
        client = host.start("connect", "127.0.0.1", port, *asking, folder=folder, program=ECHO)
        try:
            yield server, client
        finally:
            client.stop()
    finally:
        server.stop()


COUNTS = ("--connections", "2", "--messages", "3", "--size", "5001")


@pytest.mark.parametrize(("options", "first"), [((), "client"), (("--server-first",), "server")])
def test_all_messages_go_each_way_and_one_end_is_the_first(options, first, tmp_path):
    with ends(tmp_path, (*COUNTS, *options), (*COUNTS, *options)) as jobs:
        for name, job in zip(("server", "client"), jobs, strict=True):
            done = [line for line in job.finish() if "times" in line]
            wanted = ["6 times SEND", "6 times RECV"]
            assert done == (wanted if name == first else wanted[::-1])


def test_a_server_that_sends_first_takes_no_client_without_peer_to_peer(tmp_path):
    with ends(tmp_path, ("--server-first",)) as (server, client):
        with pytest.raises(JobError, match=r"does not connect peer-to-peer.*RFC 5044, 7\.1\.2"):
            server.finish()
        with pytest.raises(JobError, match="ConnectionRejected"):
            client.finish()


def test_messages_of_another_size_are_no_success(tmp_path):
    with ends(tmp_path, ("--size", "100"), ("--size", "99")) as (server, _):
        with pytest.raises(JobError, match="99 bytes came; expected: 100"):
            server.finish()
