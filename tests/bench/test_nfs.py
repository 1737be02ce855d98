"""RDMA operations of NFS calls are the least possible."""

import pytest

from bench import nfs

pytestmark = pytest.mark.usefixtures("compiled_device")


def test_a_read_and_a_write_have_the_least_operations():
    read, write = nfs.count_operations()
    assert read == {"Send": 2, "RDMA Write": 1}
    assert write == {"Send": 2, "RDMA Read": 1}
    assert read.total() == write.total() == nfs.NFS_OPERATIONS


def test_figures_of_a_key_include_it(monkeypatch):
    monkeypatch.setattr(nfs, "measure_read", lambda: {nfs.READ_KEY: 1.0})
    monkeypatch.setattr(nfs, "count_operations", lambda: [nfs.Counter(a=3), nfs.Counter(b=4)])
    for key in nfs.KEYS:
        assert key in nfs.measure(key)
    assert list(nfs.measure(nfs.OPERATION_KEYS[0]).values()) == [3, 4, 3, 3]
