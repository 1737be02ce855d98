"""Random malformed traffic: the device does with every stream what the reference model says."""

import os

import pytest
from rich.console import Console

from stagecoach.sim.malformer.chunk import chunk_cases, run_chunk
from stagecoach.sim.malformer.rows import ROWS, TOO_MANY_READS, row_of

CHUNKS = 8
FPDUS = 2600
"""Mutated FPDUs of a chunk."""


def seed() -> int:
    """The seed of all chunks: STAGECOACH_SEED, or always the same."""
    return int(os.environ.get("STAGECOACH_SEED", "0")) or 20261


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.requirement("DDP-7.1-14", "DDP-7.1-15", "DDP-7.1-16", "DDP-7.1-17", "DDP-7-01")
@pytest.mark.requirement("RDMAP-4.8-01", "RDMAP-4.8-02", "RDMAP-4.8-10", "RDMAP-7.1-01")
@pytest.mark.requirement("MPA-6-01", "SEC-6.2.1-01")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_malformed_fpdus_do_what_the_reference_model_says(chunk: int):
    print(f"STAGECOACH_SEED={seed()}, chunk {chunk}")
    report = run_chunk(seed(), chunk, FPDUS)
    Console().print(report.tables())
    assert not report.failures, "\n\n".join(report.failures)
    assert report.mutated >= FPDUS
    # How fast Read Requests are answered is the device's.
    assert report.rows[TOO_MANY_READS]


def test_every_error_that_traffic_can_cause_occurs():
    """In the cases of the test above, which sees the one that depends on the device's speed."""
    missing = set(ROWS)
    for chunk in range(CHUNKS):
        for case in chunk_cases(seed(), chunk, FPDUS):
            missing.discard(row_of(case.prediction))
            late = case.prediction.late
            if late is not None and row_of(late) == TOO_MANY_READS:
                missing.discard(TOO_MANY_READS)
            if not missing:
                return
    assert not missing
