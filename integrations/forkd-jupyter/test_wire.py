"""Frames and connection files of guests are foreign bytes."""
import json
import random

import pytest

from forkd_jupyter.guest import Connection
from forkd_jupyter.install import option
from forkd_jupyter.wire import DELIM, Message, Wire


@pytest.fixture(scope="module", autouse=True)
def nothing_stays():
    """These tests need no daemon."""


def test_a_message_keeps_its_bytes():
    back, front = Wire(b"guest"), Wire(b"front")
    of = Message([b"client"], b'{"msg_id": "1", "session": "s"}', b"{}", b"{}", b"{}")
    m = back.make("execute_reply", {"status": "ok"}, of)
    m.buffers.append(b"\x00\xff")
    got = front.parse(front.frames(back.parse(back.frames(m))))
    assert (got.idents, got.buffers, got.kind, got.parent_id) == ([b"client"], [b"\x00\xff"], "execute_reply", "1")
    assert got.content == m.content


def test_a_message_with_another_key_is_refused():
    m = Wire(b"one").frames(Wire(b"one").make("status", {}))
    with pytest.raises(ValueError, match="wrong signature"):
        Wire(b"two").parse(m)


@pytest.mark.parametrize("frames", [[], [b""], [DELIM], [DELIM, b"", b"{}"], [b"x"] * 1000])
def test_frames_that_are_no_message_are_refused(frames):
    with pytest.raises(ValueError):
        Wire(b"key").parse(frames)


@pytest.mark.parametrize("header", [b"", b"[]", b"7", b"[" * 60_000, b'{"a":' * 10_000, b"\xff", b"x" * 70_000,
                                    b'{"msg_type": 7, "msg_id": {}}'])
def test_a_header_that_is_none_has_no_effect(header):
    m = Message([], header, header, b"{}", header)
    assert isinstance(m.kind, str) and isinstance(m.id, str) and isinstance(m.parent_id, str)
    assert isinstance(m.read(), dict)


def test_random_bytes_raise_value_error_only():
    dice, wire = random.Random(1), Wire(b"key")
    good = wire.frames(wire.make("status", {"execution_state": "idle"}))
    for _ in range(5000):
        frames = [bytes(f) for f in good]
        at = dice.randrange(len(frames))
        frames[at] = dice.randbytes(dice.randrange(40))
        if dice.random() < 0.3:
            del frames[dice.randrange(len(frames))]
        try:
            m = wire.parse(frames)
        except ValueError:
            continue
        assert isinstance(m.read(), dict) and isinstance(m.kind, str)


GOOD = {"key": "k", "shell_port": 1, "control_port": 2, "stdin_port": 3, "iopub_port": 4}


def test_a_connection_file_is_read():
    got = Connection.parse("7", json.dumps(GOOD))
    assert (got.pid, got.ports["iopub"], got.key) == (7, 4, b"k")
    new = Connection.new()
    assert Connection.parse("1", new.file()).ports == new.ports
    assert new.hb not in new.ports.values()


@pytest.mark.parametrize("change", [{"key": 7}, {"shell_port": "1; reboot"}, {"shell_port": 0}, {"iopub_port": 70000},
                                    {"stdin_port": True}, {"signature_scheme": "hmac-md5"}, {"control_port": None}])
def test_a_connection_file_with_unusual_values_is_refused(change):
    with pytest.raises(ValueError, match="connection file"):
        Connection.parse("1", json.dumps({**GOOD, **change}))


@pytest.mark.parametrize("pid, text", [("", "{}"), ("x", json.dumps(GOOD)), ("1", ""), ("1", "[]"),
                                       ("1", "[" * 60_000)])
def test_what_is_no_connection_file_is_refused(pid, text):
    with pytest.raises(ValueError):
        Connection.parse(pid, text)


def test_options_of_the_fork():
    assert [option("ttl=7200"), option("network=none")] == [("ttl", 7200), ("network", "none")]
    for text in ("ttl", "=1", "a b=1"):
        with pytest.raises(ValueError, match="NAME=VALUE"):
            option(text)
