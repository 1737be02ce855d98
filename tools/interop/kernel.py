"""Debian's kernel, and siw.ko for it: Debian switches siw off, so it is built from linux-source.

Only the module is built, against the headers of exactly that kernel. Three constants of siw become
parameters of the module, with the same values (`PARAMETERS`): so one guest can ask for CRCs and for
an RTR frame, and connect with MPA revision 1.
"""

import re
import shutil
from pathlib import Path

from tools.interop.errors import InteropError
from tools.interop.packages import Versions, fetch, run, with_dependencies

META = "linux-image-amd64"
_DEPMOD = "busybox-static"  # has it, and nothing else is needed to run it
MODULES = (
    "crc32c_generic",
    "crc32c_intel",
    "virtio_pci",
    "virtio_net",
    "siw",
    "rdma_ucm",
    "rpcrdma",
    "nfsv3",
    "nfsd",
)
"""Those that the guest loads; what they depend on comes with them."""

PARAMETERS = {"mpa_crc_required": "bool", "peer_to_peer": "bool", "mpa_version": "byte"}
"""Of siw: its constants that become parameters, with their types."""

_SIW = "drivers/infiniband/sw/siw"
_CONSTANT = r"^(?P<extern>extern )?(?:const )?(?P<type>bool|u_char) {name}(?P<value>[^;]*);"


def versions() -> Versions:
    """The packages of the newest kernel. Raises `InteropError`, also if their versions differ."""
    found = with_dependencies([META])
    release = release_of(found)
    series = release.split("-")[0].rsplit(".", 1)[0]
    names = [
        f"linux-image-{release}",
        f"linux-headers-{release}",
        f"linux-headers-{release.rsplit('-', 1)[0]}-common",
        f"linux-kbuild-{series}",
        f"linux-source-{series}",
    ]
    all_of_them = with_dependencies([*names, _DEPMOD])
    same = same_version({name: all_of_them[name] for name in names})
    return same | {_DEPMOD: all_of_them[_DEPMOD]}


def release_of(found: Versions) -> str:
    """The release of the kernel (`uname -r`) among packages. Raises `InteropError`."""
    for name in found:
        if name != META and (match := re.fullmatch(r"linux-image-(\d\S*)", name)):
            return match[1]
    raise InteropError(f"{META} brings no kernel")


def same_version(found: Versions) -> Versions:
    """The packages, if all have one version. Raises `InteropError`."""
    if len(set(found.values())) != 1:
        listed = ", ".join(f"{name} {version}" for name, version in found.items())
        raise InteropError(f"packages of the kernel differ in version: {listed}")
    return found


def with_parameters(text: str) -> str:
    """A source file of siw, in which the constants of `PARAMETERS` are parameters."""
    for name, kind in PARAMETERS.items():

        def change(match: re.Match[str], name: str = name, kind: str = kind) -> str:
            declared = f"{match['extern'] or ''}{match['type']} {name}{match['value']};"
            return declared + ("" if match["extern"] else f"\nmodule_param({name}, {kind}, 0644);")

        text = re.sub(_CONSTANT.format(name=name), change, text, flags=re.MULTILINE)
    return text


def build(found: Versions, folder: Path) -> None:
    """Makes `vmlinuz` in a folder, and `modules`, a tree as that of lib/modules with `MODULES`.

    `vmlinuz` is made last. Raises `InteropError`.
    """
    release = release_of(found)
    work = folder / "work"
    root = work / "root"
    root.mkdir(parents=True)
    fetch(found, root)
    tree = root / "lib/modules" / release
    (tree / "extra").mkdir()
    shutil.copy(_build_siw(root, release, work), tree / "extra")
    _keep_modules(root, release, folder / "modules")
    (root / f"boot/vmlinuz-{release}").rename(folder / "vmlinuz")
    shutil.rmtree(work)


def _build_siw(root: Path, release: str, work: Path) -> Path:
    archive = next((root / "usr/src").glob("linux-source-*.tar.xz"))
    top = archive.name.removesuffix(".tar.xz")
    run("tar", "-xf", str(archive), f"{top}/{_SIW}", folder=work)
    source = work / top / _SIW
    for path in (source / "siw_main.c", source / "siw.h"):
        changed = with_parameters(path.read_text())
        path.write_text(changed)
    headers = root / "usr/src" / f"linux-headers-{release}"
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{root}/usr/src/"))
    run("make", "-C", str(headers), f"M={source}", "CONFIG_RDMA_SIW=m", "modules")
    return source / "siw.ko"


def _keep_modules(root: Path, release: str, kept: Path) -> None:
    """Copies the modules that the guest needs, and lists what they depend on."""
    depmod = (str(root / "bin/busybox"), "depmod", "-b")
    run(*depmod, str(root), release)
    tree, target = root / "lib/modules" / release, kept / "lib/modules" / release
    for name in needed((tree / "modules.dep").read_text(), MODULES):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / name, target / name)
    for name in ("modules.builtin", "modules.order"):
        shutil.copy(tree / name, target / name)
    run(*depmod, str(kept), release)


def needed(listed: str, modules: tuple[str, ...]) -> list[str]:
    """Paths of modules and of what they depend on, by modules.dep. Raises `InteropError`."""
    depends = {}
    for line in listed.splitlines():
        path, _, others = line.partition(":")
        depends[path] = others.split()
    paths = {Path(path).stem.replace("-", "_"): path for path in depends}
    found: list[str] = []
    todo = []
    for name in modules:
        if name not in paths:
            raise InteropError(f"the kernel has no module {name}")
        todo.append(paths[name])
    while todo:
        path = todo.pop()
        if path not in found:
            found.append(path)
            todo += depends[path]
    return sorted(found)
