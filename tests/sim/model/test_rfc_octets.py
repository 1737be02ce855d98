"""Opcodes, error codes and Terminates of the model and of the driver are the RFCs' own octets."""

import pytest

from stagecoach.host_driver.mpa_terminate import SetupError, terminate_fpdu
from stagecoach.hw.interface.causes import CODES, Cause
from stagecoach.sim.model import rdmap
from stagecoach.sim.model.errors import ErrorCode
from stagecoach.sim.model.rdmap import Opcode, Terminate
from stagecoach.sim.model.terminate import terminate_for
from tests.sim.model.rfc_octets import (
    CODE_NAMES,
    OPCODES,
    STARTUP_TERMINATES,
    TERMINATE_MESSAGE,
    TERMINATES,
    ulpdu_of,
)


@pytest.mark.parametrize("name", OPCODES)
def test_opcodes_of_the_model(name: str) -> None:
    row = OPCODES[name]
    assert Opcode[name] == row.opcode, row.section
    assert rdmap.control_octet(Opcode[name]) == bytes.fromhex(row.controls)[1]
    assert rdmap.QUEUE_OF.get(Opcode[name]) == row.queue
    assert (Opcode[name] in rdmap.TAGGED_OPCODES) == (bytes.fromhex(row.controls)[0] == 0xC1)


def test_there_are_no_other_opcodes() -> None:
    assert {opcode.name for opcode in Opcode} == set(OPCODES)


@pytest.mark.parametrize("name", TERMINATES)
def test_terminates_of_the_model(name: str) -> None:
    row = TERMINATES[name]
    octets = bytes.fromhex(row.terminate)
    error = ErrorCode(octets[0] >> 4, octets[0] & 0xF, octets[1])
    assert terminate_for(error, ulpdu_of(row)).encode() == octets, row.section
    assert Terminate.decode(octets).error == error


@pytest.mark.parametrize("name", TERMINATES)
def test_codes_of_the_causes(name: str) -> None:
    code, _ = CODES[Cause[name]]
    assert code is not None
    octets = bytes([code.layer << 4 | code.error_type, code.error_code])
    assert octets.hex() == TERMINATES[name].terminate[:4], TERMINATES[name].section


def test_every_cause_with_a_terminate_is_there() -> None:
    speaking = {cause.name for cause, (code, _) in CODES.items() if code and code.can_be_sent}
    assert speaking == set(TERMINATES)


@pytest.mark.parametrize("code", CODE_NAMES)
def test_names_of_the_codes(code: str) -> None:
    layer_and_type, number = bytes.fromhex(code)
    assert ErrorCode(layer_and_type >> 4, layer_and_type & 0xF, number).name == CODE_NAMES[code]


@pytest.mark.parametrize("name", STARTUP_TERMINATES)
def test_terminates_of_the_startup(name: str) -> None:
    octets, section = STARTUP_TERMINATES[name]
    expected = bytes.fromhex(TERMINATE_MESSAGE + octets)
    for markers in (False, True):
        fpdu = terminate_fpdu(SetupError[name], markers=markers)
        marker = bytes(4) if markers else b""
        assert fpdu[:-4] == marker + len(expected).to_bytes(2, "big") + expected, section
    assert {error.name for error in SetupError} == set(STARTUP_TERMINATES)
