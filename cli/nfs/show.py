"""What the commands of `stagecoach nfs` print of files."""

import stat
import time

from stagecoach.ulp.nfs.attributes import FileAttributes, FileType
from stagecoach.ulp.nfs.client.files import Found, shown

_FORMATS = {
    FileType.REG: stat.S_IFREG,
    FileType.DIR: stat.S_IFDIR,
    FileType.BLK: stat.S_IFBLK,
    FileType.CHR: stat.S_IFCHR,
    FileType.LNK: stat.S_IFLNK,
    FileType.SOCK: stat.S_IFSOCK,
    FileType.FIFO: stat.S_IFIFO,
}


def mode_of(attributes: FileAttributes) -> str:
    """Type and permissions as `ls -l` has them."""
    return stat.filemode(_FORMATS[attributes.type] | stat.S_IMODE(attributes.mode))


def time_of(seconds: int) -> str:
    """Local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def long_lines(files: list[Found]) -> list[str]:
    """A line for each file: mode, links, owner, group, size, time, name."""
    rows = [
        (
            mode_of(each.attributes),
            str(each.attributes.nlink),
            str(each.attributes.uid),
            str(each.attributes.gid),
            str(each.attributes.size),
            time_of(each.attributes.mtime.seconds),
            shown(each.name),
        )
        for each in files
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(6)] if rows else []
    lines = []
    for mode, *numbers, date, name in rows:
        padded = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=False)]
        lines.append(" ".join([mode, *padded, date, name]))
    return lines


def summary(what: str, files: int, octets: int, seconds: float) -> str:
    """What was copied, and how fast."""
    counted = "1 file" if files == 1 else f"{files:,} files"
    rate = octets / max(seconds, 1e-6) / 1e6
    return f"{what}: {counted}, {octets:,} bytes in {seconds:.2f} s, {rate:.2f} MB/s"


def stat_lines(path: bytes, found: Found) -> list[str]:
    """What is known of a file, one line each."""
    known = found.attributes
    facts = {
        "file": shown(path),
        "type": known.type.name,
        "mode": f"{known.mode:04o} {mode_of(known)}",
        "links": known.nlink,
        "owner": f"{known.uid}:{known.gid}",
        "size": known.size,
        "used": known.used,
        "file system": f"{known.fsid:#x}",
        "file id": known.fileid,
        "accessed": time_of(known.atime.seconds),
        "modified": time_of(known.mtime.seconds),
        "changed": time_of(known.ctime.seconds),
        "handle": found.handle.hex(),
    }
    width = max(map(len, facts))
    return [f"{name.rjust(width)}  {value}" for name, value in facts.items()]
