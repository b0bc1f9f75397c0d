"""Files of snapshots: OCI layouts in a tar (docs/inside/formats/hub.md)."""
from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from typing import Any

from .errors import ConflictError, InvalidRequestError

_PIECE = 256 << 10
_MAX_SMALL = 4 << 20
_FAILURE = "forkd-failure"


class Layout:
    """A snapshot's file. Raises InvalidRequestError if it is none, and ConflictError if its export failed.

    The daemon verifies all content, so this class only finds it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file = open(self.path, "rb")
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as tar:
                self._at = {m.name.removeprefix("./"): (m.offset_data, m.size) for m in tar if m.isreg()}
            if _FAILURE in self._at:
                raise ConflictError(f"the export of {self.path} failed: {self._small(_FAILURE).decode('utf-8', 'replace')}")
            index = json.loads(self._small("index.json"))
            self.raw = self._small(_blob(index["manifests"][0]))
            self.manifest: dict[str, Any] = json.loads(self.raw)
            self.title = str((self.manifest.get("annotations") or {}).get("org.opencontainers.image.title") or "")
        except (KeyError, IndexError, TypeError, ValueError, tarfile.TarError) as e:
            self._file.close()
            raise InvalidRequestError(f"{self.path} is no file of a snapshot: {e}",
                                      hint="make one with Snapshot.export or `forkd snapshot export`") from e
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _small(self, name: str) -> bytes:
        offset, size = self._at[name]
        if size > _MAX_SMALL:
            raise ValueError(f"{name} has {size} bytes")
        self._file.seek(offset)
        return self._file.read(size)

    def stream(self) -> Iterator[bytes]:
        """Yields the stream that a daemon takes: manifest, configuration, and the blobs in their order."""
        yield from _entry("manifest.json", len(self.raw), io.BytesIO(self.raw))
        yield from self._copy("config.json", self.manifest["config"])
        for d in self.manifest["layers"]:
            yield from self._copy(_blob(d), d)
        yield b"\0" * 1024

    def _copy(self, name: str, descriptor: dict[str, Any]) -> Iterator[bytes]:
        blob = _blob(descriptor)
        if blob not in self._at:
            raise InvalidRequestError(f"{self.path} has no {blob}")
        offset, size = self._at[blob]
        self._file.seek(offset)
        yield from _entry(name, size, self._file)


def _blob(descriptor: dict[str, Any]) -> str:
    return "blobs/" + str(descriptor["digest"]).replace(":", "/", 1)


def _entry(name: str, size: int, source: io.BufferedReader | io.BytesIO) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size = size
    yield info.tobuf(tarfile.PAX_FORMAT)
    left = size
    while left:
        piece = source.read(min(_PIECE, left))
        if not piece:
            raise InvalidRequestError(f"the file of the snapshot ends within {name}")
        left -= len(piece)
        yield piece
    yield b"\0" * (-size % 512)
