"""Trees of files as tar streams, in the agent's format (docs/inside/formats/agent-protocol.md, "Trees").

A file is one entry or several consecutive pieces. The last entry is a note.
"""
from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .errors import ConnectionBrokenError, InvalidRequestError, PartialError

_PIECE = 256 << 10


def pack(source: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yields a file or a directory as a stream, with modes, times, links and hard links.

    Sockets, pipes and devices are left out.
    """
    top = Path(source)
    seen: dict[tuple[int, int], str] = {}
    for path, name in _walk(top):
        st = os.lstat(path)
        if stat.S_ISREG(st.st_mode) and st.st_nlink > 1:
            first = seen.setdefault((st.st_dev, st.st_ino), name)
            if first != name:
                yield _header(name, st, tarfile.LNKTYPE, link=first)
                continue
        if stat.S_ISDIR(st.st_mode):
            yield _header(name, st, tarfile.DIRTYPE)
        elif stat.S_ISLNK(st.st_mode):
            yield _header(name, st, tarfile.SYMTYPE, link=os.readlink(path))
        elif stat.S_ISREG(st.st_mode):
            yield from _file(path, name, st)
    end = tarfile.TarInfo("end")
    end.pax_headers = {"FORKD.note": "end"}
    yield end.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + b"\0" * 1024


def _walk(top: Path) -> Iterator[tuple[str, str]]:
    """Yields paths and names in the tree. The content of a directory follows it at once."""
    waiting = [(str(top), ".")]
    while waiting:
        path, name = waiting.pop()
        yield path, name
        if os.path.isdir(path) and not os.path.islink(path):
            prefix = "" if name == "." else name + "/"
            waiting += [(os.path.join(path, e), prefix + e) for e in sorted(os.listdir(path), reverse=True)]


def _header(name: str, st: os.stat_result, kind: bytes, link: str = "", size: int = 0,
            records: dict[str, str] | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    info.mode, info.mtime = stat.S_IMODE(st.st_mode) & 0o777, int(st.st_mtime)
    info.pax_headers = records or {}
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _file(path: str, name: str, st: os.stat_result) -> Iterator[bytes]:
    """Yields a file in pieces. A file that shrinks meanwhile ends early."""
    with open(path, "rb") as f:
        at, piece = 0, f.read(_PIECE)
        while True:
            later = f.read(_PIECE) if len(piece) == _PIECE else b""
            records = {"FORKD.at": str(at)} if at else {}
            if later:
                records["FORKD.more"] = "1"
            yield _header(name, st, tarfile.REGTYPE, size=len(piece), records=records)
            yield piece + b"\0" * (-len(piece) % 512)
            if not later:
                return
            at, piece = at + len(piece), later


def unpack(stream: BinaryIO, target: Path) -> None:
    """Creates the tree of a stream at target, which must not exist.

    The guest chooses names and links. Names with .. are refused, and links are made last, so no file
    is written through a link.
    """
    links: list[tuple[Path, tarfile.TarInfo]] = []
    times: list[tuple[Path, tarfile.TarInfo]] = []
    failed: list[str] = []
    ended = False
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for info in tar:
            note = info.pax_headers.get("FORKD.note")
            if note == "end":
                ended = True
                break
            if note == "failed":
                failed.append(f"{info.name}: {info.pax_headers.get('FORKD.text', '')}")
            if note:
                continue
            path = _place(target, info.name)
            if info.isdir():
                path.mkdir(exist_ok=path == target)
                times.append((path, info))
            elif info.isreg():
                _write(tar, info, path)
            elif info.issym():
                links.append((path, info))
            elif info.islnk():
                os.link(_place(target, info.linkname), path, follow_symlinks=False)
    for path, info in links:
        os.symlink(info.linkname, path)
    for path, info in reversed(times):
        os.chmod(path, info.mode & 0o777)
        os.utime(path, (info.mtime, info.mtime))
    if not ended:
        raise ConnectionBrokenError(f"the copy to {target} broke off", hint="its files are incomplete: copy again")
    if failed:
        raise PartialError(f"copy to {target}: {len(failed)} files could not be read, the first is {failed[0]}")


def _write(tar: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(info)
    at = int(info.pax_headers.get("FORKD.at", "0"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (0 if at else os.O_EXCL)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as f:
        f.seek(at)
        while content is not None and (chunk := content.read(_PIECE)):
            f.write(chunk)
        if not info.pax_headers.get("FORKD.more"):
            f.truncate(max(at + info.size, f.tell()))
    os.chmod(path, info.mode & 0o777)
    os.utime(path, (info.mtime, info.mtime))


def _place(target: Path, name: str) -> Path:
    parts = [p for p in name.split("/") if p not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise InvalidRequestError(f"the sandbox sent a file with the name {name!r}, which leads out of {target}")
    return target.joinpath(*parts)
