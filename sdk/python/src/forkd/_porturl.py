"""URLs of servers in sandboxes."""
from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from .errors import UnsupportedError


def port_url(daemon: str, domain: str | None, dns_id: str | None, port: int) -> str:
    """Returns the URL of a port of a sandbox, for a caller that reaches the daemon at a URL.

    Raises UnsupportedError if there is none: the daemon is on a Unix socket or has no domain, or it is on another
    host and its domain is a name of its own host.
    """
    parts = urlsplit(daemon)
    if parts.scheme == "unix" or not domain or not dns_id or (_local(domain) and not _local(parts.hostname or "")):
        raise UnsupportedError(f"port {port} has no URL at {daemon}", hint="use forward_port")
    suffix = f":{parts.port}" if parts.port else ""
    scheme = "http" if parts.scheme == "tcp" else parts.scheme
    return f"{scheme}://{port}-{dns_id}.{domain}{suffix}/"


def _local(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
