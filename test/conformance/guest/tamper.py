# Spoils one thing after the other, and prints what the canaries said of each: one
# that does not notice proves nothing. The first argument is canary.py, the second
# a directory to be made.
import importlib.util, json, os, signal, struct, sys

spec = importlib.util.spec_from_file_location("canary", sys.argv[1])
m = importlib.util.module_from_spec(spec)
spec.loader.exec_module(m)
c = m.Canaries(sys.argv[2])


def page(behind, first=None, last=None):
    """Spoils the page that was stamped so many steps ago; without a value an end stays."""
    step = c.memory.steps - 1 - behind
    at = step % m.PAGES * (m.PAGE // 8)
    for end, value in (0, first), (m.PAGE // 8 - 1, last):
        if value is not None:
            c.memory.words[at + end] = value(step)


def sweeps(n, era=0):
    return lambda step: era << 40 | step + n * m.PAGES


def whole(behind, value):
    page(behind, value, value)


def in_file(name, at):
    fd = os.open(f"{c.files.dir}/{c.files.nonce}-{name}", os.O_RDWR)
    os.pwrite(fd, b"x", at)
    os.close(fd)


def in_flight(stream):
    """One record is another."""
    os.read(stream.read, stream.RECORD)
    os.write(stream.write, b"\xff" * stream.RECORD)
    stream.flight.append(stream.flight.popleft())


def end(worker):
    os.kill(worker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)


def stop(worker):
    os.kill(worker.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)


def apart(change):
    """Memory is changed in a copy of this process, so that the next has it whole."""
    if pid := os.fork():
        os.waitpid(pid, 0)
        return
    change()
    c.memory.check([0])
    say(sorted(m.bad))
    sys.stdout.flush()
    os._exit(0)


def passed(change):
    """The writer comes by and writes over it."""
    change()
    for _ in range(m.PAGES):
        c.memory.step(0)


def say(found):
    print(json.dumps({"changed": changed, "column": column, "found": found}))


process, napper, sleeper = c.workers
for changed, column, change in [
    ("nothing", "", lambda: None),
    ("a page is older", "memory", lambda: whole(100, sweeps(-1))),
    ("a page is of later", "memory", lambda: whole(4000, sweeps(1))),
    ("half a page is older", "memory", lambda: page(5, last=sweeps(-1))),
    ("a page is of another", "memory", lambda: whole(0, sweeps(0, 77))),
    ("a page was older", "memory", lambda: passed(lambda: whole(100, sweeps(-1)))),
]:
    apart(change)
for changed, column, change in [
    ("the last block is older", "disk", lambda: os.pwrite(c.log.fd, struct.pack("Q", 1) * 512, 0)),
    ("a mark is of another", "files", lambda: c.marks.mark(99)),
    ("a byte in the page cache", "unflushed", lambda: in_file("unflushed", 1)),
    ("an open file's place", "open", lambda: os.lseek(c.files.open, 5, os.SEEK_SET)),
    ("a byte in a file without a name", "unlinked", lambda: os.pwrite(c.files.unlinked, b"x", 9)),
    ("bytes in a pipe", "pipe", lambda: in_flight(c.streams[0])),
    ("bytes of a connection", "tcp", lambda: in_flight(c.streams[2])),
    ("a process has ended", "process", lambda: end(process)),
    ("a napper has ended", "napper", lambda: end(napper)),
    ("a sleeper stands", "sleeper", lambda: stop(sleeper)),
    ("a timer is late", "timer", lambda: setattr(c.timer, "began", c.timer.began - 3600)),
    ("a clock went back", "uptime", lambda: setattr(c, "last", 1 << 62)),
]:
    change()
    c.look_at_clock()
    say(sorted(c.check([0])))
end(sleeper)
