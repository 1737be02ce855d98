"""Whose rights calls have, and that a client's root is nobody's."""

import os
import threading

import pytest

from stagecoach.cli.nfs import command
from stagecoach.ulp.nfs import program as p
from stagecoach.ulp.nfs.arguments import (
    Access,
    AccessArguments,
    CreateArguments,
    CreateMode,
    DirectoryArguments,
    HandleArguments,
    LinkArguments,
    MkdirArguments,
    MknodArguments,
    ReadArguments,
    SetattrArguments,
    SymlinkArguments,
)
from stagecoach.ulp.nfs.attributes import FileType, SetAttributes
from stagecoach.ulp.nfs.mount import MNT, MountStatus
from stagecoach.ulp.nfs.server import rights
from stagecoach.ulp.nfs.server.rights import (
    NOBODY,
    ClientRights,
    ServerRights,
    Squash,
    User,
)
from stagecoach.ulp.nfs.status import NfsStatus
from stagecoach.ulp.oncrpc.auth import AuthSys
from tests.ulp.nfs.rig import MACHINE, Rig

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can have the rights of others")
NOTHING = SetAttributes()
DEFAULT = Squash()


def caller(uid, gid, *gids):
    return AuthSys(0, MACHINE, uid, gid, list(gids))


@pytest.mark.parametrize(
    ("squash", "credential", "user"),
    [
        (Squash(), caller(1000, 100, 4, 5), User(1000, 100, (4, 5))),
        (Squash(), caller(0, 0), User(NOBODY, NOBODY)),
        (Squash(), caller(0, 100, 0, 5), User(NOBODY, 100, (NOBODY, 5))),
        (Squash(), caller(1000, 0, 0), User(1000, NOBODY, (NOBODY,))),
        (Squash(uid=7, gid=8), caller(0, 0, 0), User(7, 8, (8,))),
        (Squash(), None, User(NOBODY, NOBODY)),
        (Squash(uid=7, gid=8), None, User(7, 8)),
        (Squash(root=False), caller(0, 0, 0), User(0, 0, (0,))),
        (Squash(root=False), None, User(NOBODY, NOBODY)),
        (Squash(everybody=True), caller(1000, 100, 4), User(NOBODY, NOBODY)),
        (Squash(root=False, everybody=True), caller(0, 0), User(NOBODY, NOBODY)),
        # These would leave the ids of the server.
        (
            Squash(root=False),
            caller(2**32 - 1, 2**32 - 1, 2**32 - 1),
            User(NOBODY, NOBODY, (NOBODY,)),
        ),
    ],
)
def test_whom_callers_are_taken_for(squash, credential, user):
    assert squash.user(credential) == user


@pytest.fixture
def make(tmp_path):
    """Makes a rig in which the server has the rights of its callers."""
    rigs = []

    def made(squash=DEFAULT):
        rigs.append(Rig(tmp_path, rights=ClientRights(squash)))
        rigs[-1].directory.chmod(0o777)
        return rigs[-1]

    yield made
    for rig in rigs:
        rig.assert_untouched()
        rig.close()


def read(rig, handle):
    return rig.status(p.READ, ReadArguments(handle, 0, 10))


def private(rig, name="private", mode=0o600, gid=0):
    path = rig.directory / name
    path.write_bytes(b"content")
    os.chown(path, 0, gid)
    path.chmod(mode)
    return rig.handle(name)


@ROOT
def test_permissions_of_files_hold_for_callers(make):
    rig = make()
    handle, groups = private(rig), private(rig, "groups", 0o640, 2000)
    for who, allowed in [
        (caller(1000, 1000), (NfsStatus.ACCES, NfsStatus.ACCES)),
        (caller(1000, 1000, 2000), (NfsStatus.ACCES, NfsStatus.OK)),
        (caller(1000, 2000), (NfsStatus.ACCES, NfsStatus.OK)),
        (caller(0, 0, 0), (NfsStatus.ACCES, NfsStatus.ACCES)),
        (caller(1000, 1000), (NfsStatus.ACCES, NfsStatus.ACCES)),
    ]:
        rig.caller = who
        assert (read(rig, handle), read(rig, groups)) == allowed, who
    arguments = SetattrArguments(handle, SetAttributes(mode=0o777), None)
    assert rig.status(p.SETATTR, arguments) == NfsStatus.PERM
    rights_of = rig.ok(p.ACCESS, AccessArguments(handle, Access.READ | Access.MODIFY)).access
    assert rights_of == 0
    rig.caller = None
    assert read(rig, handle) == NfsStatus.ACCES


@ROOT
def test_files_belong_to_who_makes_them(make):
    rig = make()
    for number, (who, owner) in enumerate(
        [(caller(1000, 1001, 7), (1000, 1001)), (caller(0, 0), (NOBODY, NOBODY)), (None,) * 2]
    ):
        rig.caller, owner = who, owner or (NOBODY, NOBODY)
        name = f"{number}".encode()
        of = lambda kind, name=name: DirectoryArguments(rig.root, kind + name)  # noqa: E731
        how = (CreateMode.UNCHECKED, SetAttributes(mode=0o4755))
        for procedure, arguments in [
            (p.CREATE, CreateArguments(of(b"f"), how)),
            (p.MKDIR, MkdirArguments(of(b"d"), NOTHING)),
            (p.SYMLINK, SymlinkArguments(of(b"l"), NOTHING, memoryview(b"x"))),
            (p.MKNOD, MknodArguments(of(b"p"), (FileType.FIFO, NOTHING))),
        ]:
            found = rig.ok(procedure, arguments).attributes
            assert (found.uid, found.gid) == owner, procedure.name
    rig.caller = caller(1000, 1001)
    given = SetattrArguments(rig.handle("f0"), SetAttributes(uid=0), None)
    assert rig.status(p.SETATTR, given) == NfsStatus.PERM


@ROOT
def test_root_of_clients_is_root_if_that_is_wanted(make):
    rig = make(Squash(root=False))
    assert read(rig, private(rig)) == NfsStatus.OK
    how = (CreateMode.UNCHECKED, SetAttributes(mode=0o640, uid=5, gid=6))
    found = rig.ok(p.CREATE, CreateArguments(DirectoryArguments(rig.root, b"new"), how)).attributes
    assert (found.uid, found.gid, found.mode) == (5, 6, 0o640)


@ROOT
def test_directories_keep_callers_out_but_not_those_with_a_handle(make):
    rig = make()
    folder = rig.directory / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").touch()
    handle, inside = rig.handle("folder"), rig.handle("folder/sub/file")
    folder.chmod(0o700)
    rig.caller = caller(1000, 1000)
    assert rig.status(p.LOOKUP, DirectoryArguments(handle, b"sub")) == NfsStatus.ACCES
    assert rig.status(p.REMOVE, DirectoryArguments(handle, b"sub")) == NfsStatus.ACCES
    assert read(rig, inside) == NfsStatus.OK
    assert rig.mount_call(MNT, b"/export/folder/sub")[0] == MountStatus.ACCES
    assert rig.mount_call(MNT, b"/export")[0] == MountStatus.OK


@ROOT
def test_files_of_others_are_not_linked_or_removed_in_sticky_directories(make):
    rig = make()
    handle = private(rig)
    rig.directory.chmod(0o1777)
    rig.caller = caller(1000, 1000)
    removed = rig.status(p.REMOVE, DirectoryArguments(rig.root, b"private"))
    assert removed in (NfsStatus.PERM, NfsStatus.ACCES)
    link = LinkArguments(handle, DirectoryArguments(rig.root, b"link"))
    rig.call(p.LINK, link)  # as fs.protected_hardlinks says
    assert rig.attributes(handle).mode == 0o600


def ids_of_thread():
    """uid, gid and groups for the file system, as the kernel tells them."""
    fields = {}
    with open("/proc/thread-self/status") as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            fields[name] = rest.split()
    return fields["Uid"][3], fields["Gid"][3], fields["Groups"], fields["CapEff"][0]


@ROOT
def test_only_the_thread_of_the_call_has_other_rights_and_only_meanwhile(make):
    before = ids_of_thread()
    client_rights = ClientRights(Squash())
    inside, go_on = threading.Event(), threading.Event()
    seen = []

    def call():
        with client_rights.acting(caller(1000, 1001, 5)):
            seen.append(ids_of_thread())
            with client_rights.own():
                seen.append(ids_of_thread())
            seen.append(ids_of_thread())
            inside.set()
            go_on.wait(10)
        seen.append(ids_of_thread())
        with pytest.raises(OSError, match="nothing"), client_rights.acting(None):
            raise OSError("nothing")
        seen.append(ids_of_thread())

    thread = threading.Thread(target=call)
    thread.start()
    assert inside.wait(10)
    assert ids_of_thread() == before
    go_on.set()
    thread.join()
    assert seen[0][:3] == seen[2][:3] == ("1000", "1001", ["5"])
    assert int(seen[0][3], 16) & 0b11111 == 0  # CAP_CHOWN to CAP_FSETID
    assert seen[1] == seen[3] == seen[4] == before


@ROOT
def test_a_system_that_does_not_change_the_ids_is_not_served(monkeypatch):
    monkeypatch.setattr(rights._libc, "setfsuid", lambda uid: 0)
    with pytest.raises(PermissionError, match="cannot work as uid 65534, gid 65534: they are 0"):
        ClientRights(Squash())


@ROOT
def test_another_machine_is_not_served_as_root(monkeypatch):
    monkeypatch.setattr(rights.platform, "machine", lambda: "vax")
    with pytest.raises(OSError, match="rights of clients on vax; allowed: x86_64"):
        ClientRights(Squash())


@ROOT
def test_root_is_warned(capsys):
    assert isinstance(command.rights_of(Squash()), ClientRights)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "warning: root runs this server" in error
    assert "(root_squash, anonuid=65534, anongid=65534)" in error
    assert (
        command.rights_of(Squash(root=False, uid=5))
        and "(no_root_squash" in capsys.readouterr().err
    )


def test_another_user_is_named(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert isinstance(command.rights_of(Squash()), ServerRights)
    assert capsys.readouterr().err == "stagecoach nfs: every call has the rights of uid 1000\n"


def test_without_root_every_caller_is_the_server(rig):
    """Whoever they say they are: nothing is refused that the server may, and owners are its own."""
    for who in (caller(0, 0), caller(1000, 1000), None):
        rig.caller = who
        where = DirectoryArguments(rig.root, b"new")
        found = rig.ok(p.CREATE, CreateArguments(where, (CreateMode.UNCHECKED, NOTHING)))
        assert (found.attributes.uid, found.attributes.gid) == (os.geteuid(), os.getegid())
        rig.ok(p.GETATTR, HandleArguments(found.object))
