"""The MOUNT program."""

import pytest

from stagecoach.ulp.nfs import mount
from stagecoach.ulp.nfs.mount import ExportEntry, MountEntry, MountStatus
from stagecoach.ulp.nfs.server import mounts
from stagecoach.ulp.nfs.server.export import Export
from tests.ulp.nfs.rig import MACHINE


@pytest.fixture
def tree(rig):
    (rig.directory / "sub" / "inner").mkdir(parents=True)
    (rig.directory / "file").touch()
    (rig.directory / "out").symlink_to("..")
    (rig.directory / "in").symlink_to("sub")
    return rig


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"/export", ""),
        (b"/export/", ""),
        (b"//export//", ""),
        (b"/export/sub", "sub"),
        (b"/export/sub/inner/", "sub/inner"),
        (b"/export/./sub", "sub"),
    ],
)
def test_mount(tree, path, name):
    status, result = tree.mount_call(mount.MNT, path)
    assert status == MountStatus.OK
    assert result.handle == tree.handle(name)
    assert result.flavors == [1, 0]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"", MountStatus.NOENT),
        (b"/", MountStatus.NOENT),
        (b"export", MountStatus.NOENT),
        (b"/other", MountStatus.NOENT),
        (b"/export2", MountStatus.NOENT),
        (b"/export/missing", MountStatus.NOENT),
        (b"/export/..", MountStatus.ACCES),
        (b"/export/../secret", MountStatus.ACCES),
        (b"/export/sub/../..", MountStatus.ACCES),
        (b"/export/file", MountStatus.NOTDIR),
        (b"/export/file/x", MountStatus.NOTDIR),
        (b"/export/out", MountStatus.NOTDIR),
        (b"/export/out/export", MountStatus.NOTDIR),
        (b"/export/in/inner", MountStatus.NOTDIR),
        (b"/export/su\0b", MountStatus.ACCES),
        (b"/export/" + b"x" * 300, MountStatus.NAMETOOLONG),
    ],
)
def test_paths_that_are_not_exported(tree, path, status):
    assert tree.mount_call(mount.MNT, path) == (status, None)


def test_exports(rig):
    assert rig.mount_call(mount.EXPORT, None) == [ExportEntry(b"/export", [])]


def test_who_mounted_what(tree, monkeypatch):
    monkeypatch.setattr(mounts, "_REMEMBERED", 2)
    assert tree.mount_call(mount.DUMP, None) == []
    for path in (b"/export", b"/export/sub", b"/export/sub/inner", b"/export/missing"):
        tree.mount_call(mount.MNT, path)
    newest = [MountEntry(MACHINE, path) for path in (b"/export/sub", b"/export/sub/inner")]
    assert tree.mount_call(mount.DUMP, None) == newest
    tree.mount_call(mount.UMNT, b"/export/sub")
    tree.mount_call(mount.UMNT, b"/export/other")
    assert tree.mount_call(mount.DUMP, None) == newest[1:]
    tree.mount_call(mount.UMNTALL, None)
    assert tree.mount_call(mount.DUMP, None) == []


@pytest.mark.parametrize("path", ["", "export", "/a/../b", "/..", "/a\0b"])
def test_export_paths_that_are_none(tmp_path, path):
    with pytest.raises(ValueError, match="allowed: absolute"):
        Export(tmp_path, path)


def test_export_of_the_root(tmp_path):
    export = Export(tmp_path, "/")
    assert export.path == b"/"
    export.close()
