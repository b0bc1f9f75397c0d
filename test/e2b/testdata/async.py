"""What a program does with the asynchronous half of E2B's Python package; see sync.py."""
import asyncio
import os

import e2b
from common import leave
from e2b import AsyncSandbox

template = os.environ["E2B_TEST_TEMPLATE"]
base = os.environ["E2B_TEST_DIR"]


async def main():
    s = await AsyncSandbox.create(template, timeout=300, envs={"CREATED": "2"})
    try:
        r = await s.commands.run("echo $CREATED")
        assert r.stdout == "2\n", r
        many = await asyncio.gather(*(s.commands.run(f"echo {i}") for i in range(10)))
        assert [m.stdout for m in many] == [f"{i}\n" for i in range(10)]
        try:
            await s.commands.run("exit 4")
            raise AssertionError("an exit code is no error")
        except e2b.CommandExitException as e:
            assert e.exit_code == 4
        h = await s.commands.run("read line; echo got $line", background=True, stdin=True)
        await s.commands.send_stdin(h.pid, "it\n")
        assert (await h.wait()).stdout == "got it\n"

        d = base + "/watched"
        await s.files.make_dir(d)
        seen = asyncio.Event()
        w = await s.files.watch_dir(d, on_event=lambda ev: seen.set() if ev.name == "new" else None)
        await s.files.write(d + "/new", "x")
        await asyncio.wait_for(seen.wait(), 30)
        await w.stop()
        assert await s.files.read(d + "/new") == "x"

        out = []
        t = await s.pty.create(size=e2b.PtySize(rows=24, cols=80), on_data=out.append)
        await s.pty.send_stdin(t.pid, b"echo in-$((40+2)); exit 0\n")
        await t.wait()
        assert b"in-42" in b"".join(bytes(o) for o in out)
        assert await s.is_running()
    finally:
        assert await s.kill() is True
    assert not await s.is_running()
    print("ok   async")


asyncio.run(main())
leave()
