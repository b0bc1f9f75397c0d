"""Forwarded ports without a daemon."""
import socket
import threading
import time

import pytest

from forkd._address import Address
from forkd._forward import Forward


def test_a_closed_forward_leaves_no_port_and_no_thread() -> None:
    before = threading.active_count()
    forward = Forward(Address("http://127.0.0.1:1", ""), "/")
    address = forward.listen(0)
    listener = forward._listener
    with socket.create_connection(address, 5) as s:
        assert s.recv(1) == b""  # no daemon answers
    time.sleep(0.2)  # elapses: the thread waits in accept() again
    accepting = [t for t in threading.enumerate() if t.name.endswith("(_accept)")]
    forward.close()
    for thread in accepting:
        thread.join(5)
    assert threading.active_count() == before
    assert listener is not None and listener.fileno() == -1
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 5)
