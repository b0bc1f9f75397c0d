"""Raw connections to a port of a guest: an HTTP request is upgraded to a byte stream."""
from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

from ._address import Address, tls
from .errors import ConnectionBrokenError, GuestTimeoutError, TooLargeError, UnreachableError, of_answer

_UPGRADE = "forkd-tcp"
_MAX_HEAD = 64 << 10
_MAX_ERROR = 1 << 20
_RELAY = 256 << 10  # bytes of one direction that wait for the other side


def connect(address: Address, path: str, headers: Mapping[str, str] | None = None,
            timeout: float = 30) -> socket.socket:
    """Connects to a port. The next byte of the connection is the port's first one."""
    parts = urlsplit(address.url)
    try:
        if parts.scheme == "unix":
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.settimeout(timeout)
            s.connect(parts.path)
        else:
            secure = parts.scheme == "https"
            s = socket.create_connection((parts.hostname or "", parts.port or (443 if secure else 80)), timeout)
            if secure:
                s = tls(address).wrap_socket(s, server_hostname=parts.hostname)
    except OSError as e:
        raise UnreachableError(f"no daemon answers at {address.shown}: {e}") from e
    try:
        _upgrade(s, address, path, headers or {})
    except OSError as e:
        s.close()
        raise ConnectionBrokenError(f"GET {path}: the connection to {address.shown} broke: {e}") from e
    except BaseException:
        s.close()
        raise
    return s


def _upgrade(s: socket.socket, address: Address, path: str, headers: Mapping[str, str]) -> None:
    host = urlsplit(address.url).netloc.rpartition("@")[2] or "forkd"
    lines = {"Host": host, "Connection": "Upgrade", "Upgrade": _UPGRADE, **headers}
    if address.token:
        lines["Authorization"] = f"Bearer {address.token}"
    head = f"GET {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items())
    s.sendall(head.encode() + b"\r\n")
    status, length = _answer(s, path)
    if status == 101:
        return
    body = b""
    while len(body) < min(length, _MAX_ERROR) and (chunk := s.recv(65536)):
        body += chunk
    raise of_answer(status, body, own=True)


def _answer(s: socket.socket, path: str) -> tuple[int, int]:
    """Reads the head of an answer byte by byte, because the port's own bytes may follow. Returns status and length."""
    got = bytearray()
    while not got.endswith(b"\r\n\r\n"):
        byte = s.recv(1)
        if not byte or len(got) > _MAX_HEAD:
            raise ConnectionBrokenError(f"GET {path}: the daemon closed the connection")
        got += byte
    try:
        first, *lines = bytes(got).split(b"\r\n")
        fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(b":") for line in lines)}
        return int(first.split(b" ", 2)[1]), int(fields.get(b"content-length", 0))
    except (IndexError, ValueError) as e:
        raise ConnectionBrokenError(f"GET {path}: the answer is no HTTP: {bytes(got[:100])!r}") from e


def exchange(address: Address, path: str, data: bytes, timeout: float, max_bytes: int,
             headers: Mapping[str, str]) -> bytes:
    """Sends data, and returns all bytes until the other side closes.

    The data is sent beside the reading, because a port may answer before it has read all. A connection with TLS is
    not for two threads, and has no end of one direction: then the port must close after its answer.
    """
    s = connect(address, path, headers)
    got = bytearray()
    with s:
        s.settimeout(timeout)
        sender = threading.Thread(target=_send, args=(s, data), daemon=True)
        try:
            if isinstance(s, ssl.SSLSocket):
                s.sendall(data)
            else:
                sender.start()
            while chunk := s.recv(65536):
                got += chunk
                if len(got) > max_bytes:
                    raise TooLargeError(f"GET {path}: the port's answer has more than {max_bytes} bytes",
                                        hint="read it in pieces with dial, or give a higher max_bytes")
        except TimeoutError as e:
            raise GuestTimeoutError(f"GET {path}: the port sent nothing for {timeout:g} s") from e
        except OSError as e:
            raise ConnectionBrokenError(f"GET {path}: the connection to {address.shown} broke: {e}",
                                        reason="maybe_done") from e
        finally:
            _shutdown(s)  # the sender may wait for room
            if sender.ident is not None:
                sender.join()
    return bytes(got)


def _send(s: socket.socket, data: bytes) -> None:
    try:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
    except OSError:  # the reader sees it, or the port needed no more
        pass


def _shutdown(s: socket.socket) -> None:
    try:
        s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


class Forward:
    """A listener on the loopback that forwards its connections."""

    def __init__(self, address: Address, path: str) -> None:
        self._address, self._path = address, path
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def listen(self, port: int) -> tuple[str, int]:
        """Starts to listen, and returns the address."""
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        host, got = self._listener.getsockname()[:2]
        return str(host), int(got)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        try:
            far = connect(self._address, self._path)
        except Exception:  # the local client sees a closed connection
            near.close()
            return
        far.settimeout(None)
        with self._lock:
            self._open |= {near, far}
        try:
            if isinstance(far, ssl.SSLSocket):
                _relay(near, far)
            else:
                back = threading.Thread(target=_copy, args=(far, near), daemon=True)
                back.start()
                _copy(near, far)
                back.join()
        except OSError:
            pass
        finally:
            with self._lock:
                self._open -= {near, far}
            near.close()
            far.close()

    def close(self) -> None:
        """Closes the listener and all connections."""
        if self._listener is not None:
            try:
                self._listener.shutdown(socket.SHUT_RDWR)  # close() alone leaves accept() waiting, on an open port
            except OSError:  # macOS: close() is enough there
                pass
            self._listener.close()
        with self._lock:
            for s in self._open:
                _shutdown(s)


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while chunk := source.recv(65536):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def _relay(near: socket.socket, far: ssl.SSLSocket) -> None:
    """Copies in both directions until one side closes, in this thread: a TLS connection is not for two.

    The end of one direction ends both: Python cannot close one direction of TLS.
    """
    near.setblocking(False)
    far.setblocking(False)
    to_near, to_far = bytearray(), bytearray()
    ended = False
    while to_near or to_far or not ended:
        moved = False
        for source, target, data in ((near, far, to_far), (far, near, to_near)):
            try:
                if not ended and len(data) < _RELAY:
                    chunk = source.recv(65536)
                    ended, moved = ended or not chunk, True
                    data += chunk
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            try:
                if data:
                    del data[:target.send(data)]
                    moved = True
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
        if not moved:
            # TLS may have to write before it reads, and the other way round, so a busy side is asked again soon.
            reading = [s for s, data in ((near, to_far), (far, to_near)) if len(data) < _RELAY and not ended]
            writing = [s for s, data in ((near, to_near), (far, to_far)) if data]
            select.select([*reading, far] if far not in reading else reading, writing, [], 1)
