"""Versions, siw's parameters, modules and libraries: what the guest is made of."""

import pytest

from tools.interop import image, kernel, packages
from tools.interop.errors import InteropError

SIMULATED = """\
NOTE: This is only a simulation!
Inst libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64]) []
Inst rdmacm-utils (44.0-2 Debian:12.15/oldstable [amd64])
Conf libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])
"""
KERNEL = {
    "linux-image-6.1.0-56-amd64": "6.1.192-2",
    "linux-source-6.1": "6.1.192-2",
}
MODULES = """\
kernel/lib/libcrc32c.ko:
kernel/net/ib-core.ko: kernel/lib/libcrc32c.ko
kernel/net/other.ko: kernel/net/ib-core.ko
extra/siw.ko: kernel/net/ib-core.ko kernel/lib/libcrc32c.ko
"""


def test_versions_are_those_that_apt_would_install():
    found = packages.parse_simulation(SIMULATED)
    assert found == {"libc6": "2.36-9+deb12u14", "rdmacm-utils": "44.0-2"}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: packages.parse_simulation("nothing\n"), "names no packages"),
        (lambda: packages.run("no-such-program-here"), "no-such-program-here is not installed"),
        (lambda: packages.run("sh", "-c", "echo E: no list >&2; exit 100"), "sh: E: no list"),
        (lambda: packages.run("false"), "false: status 1"),
        (lambda: kernel.release_of({"linux-image-amd64": "6.1.192-2"}), "brings no kernel"),
        (lambda: kernel.same_version({**KERNEL, "linux-source-6.1": "6.1.176-1"}), "6.1.176-1"),
        (lambda: kernel.needed(MODULES, ("siw", "nfsv3")), "the kernel has no module nfsv3"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(call, said):
    with pytest.raises(InteropError) as raised:
        call()
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_a_package_that_cannot_be_downloaded_asks_for_new_lists(tmp_path, monkeypatch):
    def fail(*command, folder=None):
        raise InteropError("apt-get: E: 404 Not Found")

    monkeypatch.setattr(packages, "run", fail)
    with pytest.raises(InteropError, match=r"404 Not Found \(run: apt-get update\)"):
        packages.fetch({"busybox-static": "1"}, tmp_path / "root")


def test_another_perftest_is_refused_by_its_version(monkeypatch):
    monkeypatch.setattr(kernel, "versions", lambda: KERNEL)
    monkeypatch.setattr(image, "with_dependencies", lambda names: {"perftest": "23.10.0-1"})
    with pytest.raises(InteropError, match=r"perftest is 23.10.0-1 \(expected 4.5\+0.17"):
        image.image(lambda step: None)


def test_the_release_of_the_kernel_is_that_of_its_package():
    assert kernel.release_of({"linux-image-amd64": "6.1.192-2", **KERNEL}) == "6.1.0-56-amd64"
    assert kernel.same_version(KERNEL) == KERNEL


def test_constants_of_siw_become_parameters_with_the_same_values():
    source = "const bool mpa_crc_required;\nconst bool mpa_crc_strict;\nu_char mpa_version = 2;\n"
    assert kernel.with_parameters(source) == (
        "bool mpa_crc_required;\nmodule_param(mpa_crc_required, bool, 0644);\n"
        "const bool mpa_crc_strict;\n"
        "u_char mpa_version = 2;\nmodule_param(mpa_version, byte, 0644);\n"
    )
    header = "extern const bool peer_to_peer;\nextern u_char mpa_version;\n"
    assert kernel.with_parameters(header) == header.replace("const ", "")


def test_a_module_brings_what_it_depends_on_and_nothing_else():
    found = kernel.needed(MODULES, ("siw",))
    assert found == ["extra/siw.ko", "kernel/lib/libcrc32c.ko", "kernel/net/ib-core.ko"]
    assert kernel.needed(MODULES, ("ib_core",)) == found[1:]


def test_libraries_are_those_that_a_program_names():
    printed = (
        " 0x0000000000000001 (NEEDED)             Shared library: [libibverbs.so.1]\n"
        " 0x000000000000000e (SONAME)             Library soname: [librdmacm.so.1]\n"
        " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n"
    )
    assert image.parse_needed(printed) == ["libibverbs.so.1", "libc.so.6"]


def test_the_key_changes_with_versions_and_with_sources(tmp_path):
    source = tmp_path / "init.sh"
    source.write_text("one")
    keys = {image.key_of({"a": "1"}, str(source)), image.key_of({"a": "2"}, str(source))}
    source.write_text("two")
    keys.add(image.key_of({"a": "1"}, str(source)))
    assert len(keys) == 3
    assert image.key_of({"b": "2", "a": "1"}) == image.key_of({"a": "1", "b": "2"})
