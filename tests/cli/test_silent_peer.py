"""A peer that takes the TCP connection and says nothing: each command names it."""

import socket

import pytest

from stagecoach.cli.main import main

COMMANDS = {
    "rping": lambda port: ["rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", "1"],
    "perf": lambda port: ["perf", "write", "-c", "-a", "127.0.0.1", "-p", port],
    "perftest": lambda port: ["perftest", "ib_write_bw", "127.0.0.1", "-p", port],
    "nfs": lambda port: ["nfs", "ls", f"nfs+rdma://127.0.0.1:{port}/data"],
}


@pytest.mark.usefixtures("compiled_device")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_peer_that_is_silent_in_startup_is_named(command, capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert main([*COMMANDS[command](port), "--timeout", "0.3"]) == 1
    err = capsys.readouterr().err
    assert err == (
        f"stagecoach {command}: MPA Reply frame: not within 0.3 s: 0 bytes came, 16 or more are "
        f"missing (peer 127.0.0.1:{port})\n"
    )
