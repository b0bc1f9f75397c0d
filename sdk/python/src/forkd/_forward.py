"""Raw connections to a port of a guest: an HTTP request is upgraded to a byte stream."""
from __future__ import annotations

import socket
import threading
from urllib.parse import urlsplit

from ._address import Address, tls
from .errors import ConnectionBrokenError, UnreachableError, of_answer

_UPGRADE = "forkd-tcp"


def connect(address: Address, path: str, timeout: float = 30) -> tuple[socket.socket, bytes]:
    """Connects to a port. Returns the connection and the bytes that have arrived already."""
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
        return s, _upgrade(s, address, path)
    except BaseException:
        s.close()
        raise


def _upgrade(s: socket.socket, address: Address, path: str) -> bytes:
    host = urlsplit(address.url).netloc.rpartition("@")[2] or "forkd"
    head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: {_UPGRADE}\r\n"
    if address.token:
        head += f"Authorization: Bearer {address.token}\r\n"
    s.sendall(head.encode() + b"\r\n")
    got = b""
    while b"\r\n\r\n" not in got:
        chunk = s.recv(65536)
        if not chunk or len(got) > 1 << 20:
            raise ConnectionBrokenError(f"GET {path}: the daemon closed the connection")
        got += chunk
    header, _, rest = got.partition(b"\r\n\r\n")
    status = int(header.split(b" ", 2)[1])
    if status == 101:
        return rest
    length = next((int(line.split(b":")[1]) for line in header.split(b"\r\n")
                   if line.lower().startswith(b"content-length:")), 0)
    while len(rest) < min(length, 1 << 20) and (chunk := s.recv(65536)):
        rest += chunk
    raise of_answer(status, rest, own=True)


def probe(address: Address, path: str) -> None:
    """Connects and closes."""
    connect(address, path)[0].close()


def exchange(address: Address, path: str, data: bytes) -> bytes:
    """Sends data, and returns all bytes until the other side closes."""
    s, got = connect(address, path)
    with s:
        s.sendall(data)
        try:
            s.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        while chunk := s.recv(65536):
            got += chunk
    return got


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
            far, first = connect(self._address, self._path)
        except Exception:  # the local client sees a closed connection
            near.close()
            return
        far.settimeout(None)
        with self._lock:
            self._open |= {near, far}
        try:
            near.sendall(first)
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
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while chunk := source.recv(65536):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
