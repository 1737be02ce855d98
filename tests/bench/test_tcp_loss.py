"""Figures of lost segments, from the rates of runs."""

import pytest

from bench.tcp_loss import ENGINE, LOSSES, REFERENCE, REQUIRED, Run, figures, missed

RATES = {
    ENGINE: {0.0: [8.0], 0.0001: [8.0, 7.84], 0.001: [7.6], 0.01: [3.0, 5.0]},
    REFERENCE: {0.0: [8.0], 0.0001: [8.0], 0.001: [8.0], 0.01: [4.2]},
}


def rates(of=RATES):
    return {
        Run(tcp, 1.0, loss, seed, 100): rate
        for tcp, losses in of.items()
        for loss, each in losses.items()
        for seed, rate in enumerate(each)
    }


def test_a_ratio_is_that_of_the_means_of_all_seeds():
    found = figures(rates())
    assert found["tcp_loss_0p01_ratio_to_lossless"] == 0.99
    assert found["tcp_loss_1_ratio_to_lossless"] == 0.5
    assert found["tcp_loss_1_ratio_to_reference"] == 0.952
    assert found["tcp_lossless_payload_octets_per_cycle"] == 8
    assert missed(found) == []


@pytest.mark.parametrize("name", REQUIRED)
def test_what_is_missed_is_told_by_its_key(name):
    slower = {ENGINE: RATES[ENGINE] | {LOSSES[name]: [1.0]}, REFERENCE: RATES[REFERENCE]}
    lossless, reference = missed(figures(rates(slower)))
    assert f"tcp_loss_{name}_ratio_to_lossless is 0.125; required: at least" in lossless
    assert f"tcp_loss_{name}_ratio_to_reference is" in reference
