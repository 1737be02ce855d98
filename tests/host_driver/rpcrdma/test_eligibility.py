"""Which items may become chunks is declared by the program (RFC 5666, 3.4; RFC 5667, 4)."""

import pytest

from host_driver.nfs.program import NFS


@pytest.mark.requirement("RPCRDMA-3.4-02", "RPCRDMA-3.4-01", "RPCRDMA-3.6-02")
def test_the_binding_of_nfs_says_what_may_be_a_chunk():
    procedures = NFS.procedures
    arguments = {each.name for each in procedures if each.arguments.bulk_octets}
    results = {each.name for each in procedures if each.result.bulk_octets}
    assert arguments == {"WRITE", "SYMLINK"}
    assert results == {"READ", "READLINK"}
