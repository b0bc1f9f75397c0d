"""The address of the daemon: arguments, environment, the program forkd, or the default socket."""
from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from .errors import UnreachableError

SOCKET = "/run/forkd/forkd.sock"


@dataclass
class Address:
    """Address of a daemon. Its repr shows no secret."""

    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    fingerprint: str = ""
    client_cert: str = ""
    client_key: str = field(default="", repr=False)
    context: ssl.SSLContext | None = field(default=None, repr=False)  # of tls()

    @property
    def shown(self) -> str:
        """The URL without user information."""
        parts = urlsplit(self.url)
        return self.url.replace(parts.netloc, parts.netloc.rpartition("@")[2]) if "@" in parts.netloc else self.url


def program() -> str | None:
    """Returns the path of the program forkd: FORKD_BIN, beside Python (as the wheel installs it), or PATH."""
    own = os.environ.get("FORKD_BIN")
    if own:
        return own
    for place in (sysconfig.get_path("scripts"), os.path.dirname(sys.executable)):
        path = Path(place) / "forkd"
        if os.access(path, os.X_OK):
            return str(path)
    return shutil.which("forkd")


def find(url: str | None, token: str | None, machine: str | None, fingerprint: str | None,
         command: str | None = None) -> Address:
    """Returns the daemon's address, as the command line finds it. ``command`` is the path of the program forkd.

    Raises UnreachableError with the places that were tried.
    """
    env = os.environ
    if url:
        return Address(url, token or "", fingerprint or "")
    if not machine and env.get("FORKD_URL"):
        return Address(env["FORKD_URL"], token or env.get("FORKD_TOKEN", ""),
                       fingerprint or env.get("FORKD_TLS_FINGERPRINT", ""),
                       env.get("FORKD_TLS_CLIENT_CERT", ""), env.get("FORKD_TLS_CLIENT_KEY", ""))
    tried = ["FORKD_URL is not set"]
    binary = command or program()
    if binary is None:
        tried.append("there is no program forkd in PATH")
    else:
        try:
            return _ask(binary, machine, token)
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            tried.append(f"{binary}: {e}")
    if not machine and os.path.exists(SOCKET):
        return Address(f"unix://{SOCKET}", token or "")
    tried.append(f"there is no socket {SOCKET}")
    raise UnreachableError("no daemon found: " + "; ".join(tried),
                           hint="start one with `forkd serve`, or set FORKD_URL and FORKD_TOKEN")


def _ask(binary: str, machine: str | None, token: str | None) -> Address:
    """Asks the program for the address that its own commands use. It starts the machine if needed."""
    args = [binary, "daemon", "address", "--json"]
    if machine:
        args += ["--machine-name", machine]
    done = subprocess.run(args, capture_output=True, text=True, timeout=180)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        try:
            text = json.loads(lines[-1]).get("error", lines[-1])
        except ValueError:
            text = lines[-1]
        raise ValueError(text)
    got = json.loads(done.stdout)
    return Address(got["url"], token or got.get("token", ""), got.get("tls_fingerprint", ""))


def tls(address: Address) -> ssl.SSLContext:
    """Returns the TLS settings for https://.

    With a fingerprint, it fetches the daemon's certificate once, compares it, and trusts that one only.
    """
    address.context = address.context or _settings(address)
    return address.context


def _settings(address: Address) -> ssl.SSLContext:
    if not address.fingerprint:
        context = ssl.create_default_context()
    else:
        parts = urlsplit(address.url)
        der = _certificate(parts.hostname or "", parts.port or 443)
        got = hashlib.sha256(der).hexdigest()
        want = address.fingerprint.replace(":", "").lower()
        if got != want:
            raise UnreachableError(f"the certificate of {address.shown} has the SHA-256 {got}, want {want}",
                                   reason="tls_untrusted")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(der))
    if address.client_cert:
        context.load_cert_chain(address.client_cert, address.client_key or None)
    return context


def _certificate(host: str, port: int) -> bytes:
    """Returns the certificate that a server shows. Nothing is sent to it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=10) as plain, \
            context.wrap_socket(plain, server_hostname=host) as s:
        return s.getpeercert(binary_form=True) or b""
