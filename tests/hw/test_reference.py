"""The C headers have the sizes and places of the descriptions; the pages name everything."""

import subprocess

import pytest

from stagecoach.hw.interface.queue_entries import offset_of, size_of
from stagecoach.hw.interface.registers import MEMORY, NETWORK, RNIC, registers
from stagecoach.hw.reference import (
    ALL_ENTRIES,
    ALL_ENUMS,
    DESCRIPTIONS,
    ELEMENT,
    ENTRY_HEADER,
    ENTRY_PAGE,
    MEMORY_HEADER,
    NETWORK_HEADER,
    REGISTER_HEADER,
    write_reference,
)
from tools.site.offline import outside

PROGRAM = """\
#include <stddef.h>
#include <stdio.h>
#include "{entries}"
#include "{registers}"
#include "{network}"
#include "{memory}"
int main(void) {{
{lines}
    return 0;
}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    write_reference(folder)
    return folder


def test_pages_ask_no_other_host(folder):
    made = [list((folder / page).parent.rglob("*.html")) for _, page in DESCRIPTIONS.values()]
    assert all(made)
    pages = [folder / ENTRY_PAGE, *(page for pages in made for page in pages)]
    for page in pages:
        assert outside(page.read_text()) == []


def expected() -> dict[str, int]:
    """C expressions and what they must be."""
    found = {}
    for name, fields in ALL_ENTRIES.items():
        struct = f"struct stagecoach_{name}"
        found[f"sizeof({struct})"] = size_of(fields)
        for field in fields:
            found[f"offsetof({struct}, {field.name})"] = offset_of(fields, field.name)
            found[f"sizeof((({struct} *)0)->{field.name})"] = field.octets
    for name, kind in ALL_ENUMS.items():
        for member in kind:
            found[f"STAGECOACH_{name.upper()}_{member.name}"] = member.value
    described = [("rnic", register) for register in registers(RNIC)]
    described += [("network", register) for register in registers(NETWORK)]
    described += [("memory", register) for register in registers(MEMORY)]
    for top, register in described:
        found[f"offsetof({top}_t, {register.name})"] = register.address
        for field in register.fields:
            prefix = f"{top.upper()}__{register.name}__{field.name.upper()}"
            found[f"{prefix}_bp"] = field.low
            found[f"{prefix}_bm"] = ((1 << field.width) - 1) << field.low
            if field.encoding is not None:
                name, values = field.encoding
                for value_name, value, _ in values:
                    found[f"STAGECOACH_{name}_{value_name}".upper()] = value
    return found


@pytest.mark.parametrize("compiler", [("gcc", "-std=c11"), ("g++", "-std=c++17")], ids=["c", "c++"])
def test_headers_compile_without_a_warning_and_agree_with_the_descriptions(
    folder, tmp_path, compiler
):
    wanted = expected()
    lines = [f'    printf("%llu\\n", (unsigned long long)({one}));' for one in wanted]
    source, program = tmp_path / "check.source", tmp_path / "check"
    source.write_text(
        PROGRAM.format(
            entries=ENTRY_HEADER,
            registers=REGISTER_HEADER,
            network=NETWORK_HEADER,
            memory=MEMORY_HEADER,
            lines="\n".join(lines),
        )
    )
    language = "c" if compiler[0] == "gcc" else "c++"
    options = ["-Wall", "-Wextra", "-Werror", f"-I{folder}", "-x", language, str(source)]
    result = subprocess.run(
        [*compiler, *options, "-o", str(program)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    assert dict(zip(wanted, map(int, printed.split()), strict=True)) == wanted


def test_pages_name_every_field(folder):
    page = (folder / ENTRY_PAGE).read_text()
    for fields in ALL_ENTRIES.values():
        for field in fields:
            assert f"<td>{field.name}</td>" in page
            assert field.about or field.name.startswith("reserved"), f"{field.name} has no words"
    assert ELEMENT in page
    for source, (_, page) in DESCRIPTIONS.items():
        assert (folder / page).exists()
        paths = sorted((folder / page).parent.rglob("*.json"))
        content = "".join(path.read_text() for path in paths)
        for register in registers(source):
            assert register.name in content
