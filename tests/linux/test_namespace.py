"""The namespace of a test, and what is said where there is none."""

import os
import socket
from types import SimpleNamespace

import pytest

from tests.linux import namespace as module
from tests.linux.namespace import namespace


def names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def test_the_thread_is_back_where_it_was():
    before, there = os.readlink(module._NETWORKS), names()
    with namespace():
        assert os.readlink(module._NETWORKS) != before
        assert names() == ["lo"]
    assert (os.readlink(module._NETWORKS), names()) == (before, there)


def refusal() -> str:
    with pytest.raises(pytest.fail.Exception) as failed, namespace():
        pass
    assert failed.value.pytrace is False
    return str(failed.value)


def test_no_tap_fails_in_one_line(monkeypatch):
    monkeypatch.setattr(module, "TUN", "/no/such/device")
    assert refusal() == (
        "no network namespace with a TAP: /no/such/device is not there, or not for this user; "
        "this test needs root, or `unshare -rn` before the command"
    )


def test_no_namespace_fails_in_one_line(monkeypatch):
    monkeypatch.setattr(module, "_LIBC", SimpleNamespace(unshare=lambda _: -1))
    text = refusal()
    assert text.startswith("no network namespace with a TAP: unshare: ")
    assert text.endswith("; this test needs root, or `unshare -rn` before the command")
    assert "\n" not in text


def test_a_program_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    assert refusal() == (
        "no network namespace with a TAP: ip is not installed (Debian package iproute2)"
    )
