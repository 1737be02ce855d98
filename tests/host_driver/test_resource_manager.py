"""The driver is the Privileged Resource Manager: nothing reaches the device but through it."""

import ast
from pathlib import Path

import pytest

DRIVER = Path(__file__).parents[2] / "host_driver"
MODULES = {
    path.relative_to(DRIVER).as_posix(): ast.parse(path.read_text())
    for path in DRIVER.rglob("*.py")
}
OWNERS = {
    # `Device` names it as the first of the arguments of commands.
    "QP_NUMBER": {"qp.py", "device.py", "answers.py", "srq.py", "device_reset.py"},
    "QP_STATE": {"answers.py"},
    "QP_TAKEN": {"srq.py"},
    "QP_RECEIVE_": {"qp.py", "srq.py"},
    "QP_RINGS": {"qp.py", "srq.py"},
    "QP_": {"qp.py", "device_reset.py"},
    "SEND_DOORBELL": {"qp_queues.py"},
    "RECEIVE_DOORBELL": {"qp_queues.py", "srq.py"},
    "SRQ_": {"srq.py"},
    "STAG_": {"mr.py"},
    "CQ_": {"device.py", "cq.py", "event_queue.py"},
    "COMMAND": {"device.py"},
    "INTERRUPT_": {"device.py", "event_queue.py"},
    "COUNTER_": {"counters.py"},
    "EVENTS_LOST": {"counters.py"},
    **{
        key: {"answers.py"}
        for key in ("ID", "VERSION", "INTERFACE", "QUEUES", "LIMITS", "CAPABILITIES")
    },
    "SETTINGS": {"context.py"},
}
"""Which modules name a register; the first fitting beginning of its name counts."""


def users_of(*names: str) -> set[str]:
    """The modules in which something has one of these names."""
    return {
        module
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in names
    }


@pytest.mark.requirement("RDMAP-8.1.2-01", "DDP-8.3.2-01", "SEC-3-01")
def test_registers_are_accessed_by_the_device_and_the_transports_below_it_only():
    """Those of the network are a page of their own, with a resource manager of its own."""
    users = users_of("read_register", "write_register")
    above = {module for module in users if not module.startswith(("transport/", "hostlink/"))}
    assert above == {"device.py", "network/hardware/commands.py"}


@pytest.mark.requirement("RDMAP-8.1.2-01", "DDP-8.3.2-01", "SEC-3-01", "SEC-7.2-01")
def test_every_register_has_one_owner():
    """The depths of the Read Request queues, QP_READS, are the QP's."""
    from stagecoach.host_driver import registers

    names = [name for name in vars(registers) if name.isupper()]
    assert "QP_READS" in names
    for name in names:
        owners = [owner for start, owner in OWNERS.items() if name.startswith(start)]
        assert users_of(name) <= (owners[0] if owners else {"device.py"}), name
