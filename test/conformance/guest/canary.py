"""A process full of canaries, for the conformance suite.

It writes in a fixed order and can tell at any time whether all that it sees is
what it wrote, and nothing else: a copy of it that mixes two instants, or lacks
something, knows. What it finds wrong is remembered until the next check.

    canary.py DIRECTORY    serves commands at DIRECTORY/socket, one JSON object a line
"""

import collections, ctypes, hashlib, json, mmap, os, random, select, signal, socket, struct, sys, time

PAGE, PAGES = 4096, 4096  # 16 MiB
BATCH = 16  # pages between two looks at the socket
PRIMED = 5000  # steps made before the first command
STEPS = (1 << 40) - 1  # a stamp's low bits are the step, those above the era

bad = collections.defaultdict(list)


def complain(who, text):
    if len(bad[who]) < 5:
        bad[who].append(text)


class Memory:
    """Every page of a buffer is stamped at both ends, one page after the other,
    sweep after sweep. A page's old stamp is looked at before it gets the next."""

    def __init__(self):
        self.words = memoryview(mmap.mmap(-1, PAGES * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)).cast("Q")
        self.steps = 0

    def step(self, era):
        first = self.steps % PAGES * (PAGE // 8)
        last = first + PAGE // 8 - 1
        old, want = self.words[first], self.steps - PAGES
        if want >= 0 and (old & STEPS != want or self.words[last] != old):
            complain("memory", f"step {self.steps} found page stamped {old:#x} to {self.words[last]:#x}, want step {want:#x}")
        self.words[first] = self.words[last] = era << 40 | self.steps
        self.steps += 1

    def check(self, eras):
        cut = self.steps % PAGES
        for end in 0, PAGE // 8 - 1:
            seen = self.words[end :: PAGE // 8].tolist()
            seen = seen[cut:] + seen[:cut]  # in the order of writing
            wrong = [(p, s) for p, s in enumerate(seen) if s & STEPS != self.steps - PAGES + p]
            if wrong:
                p, s = wrong[0]
                complain("memory", f"{len(wrong)} pages are not of step {self.steps}: {p} pages behind the oldest is {s:#x}")
            foreign = {s >> 40 for s in seen} - set(eras)
            if foreign or sorted(s >> 40 for s in seen) != [s >> 40 for s in seen]:
                complain("memory", f"pages of eras {foreign}, or in a wrong order, want {eras}")


class Stream:
    """Bytes in flight: WINDOW records lie between the two ends at all times."""

    RECORD, WINDOW = 256, 64

    def __init__(self, name, write, read):
        self.name, self.write, self.read, self.flight = name, write, read, collections.deque()
        for n in range(self.WINDOW):
            self.put(n)

    def put(self, stamp):
        self.flight.append(stamp)
        data = struct.pack("Q", stamp) * (self.RECORD // 8)
        while data:
            data = data[os.write(self.write, data) :]

    def get(self):
        data = b""
        while len(data) < self.RECORD:
            if not select.select([self.read], [], [], 10)[0]:
                complain(self.name, f"only {len(data)} bytes of a record of {self.RECORD} within 10 s")
                return
            more = os.read(self.read, self.RECORD - len(data))
            if not more:
                complain(self.name, "the other end has closed")
                return
            data += more
        want = self.flight.popleft()
        if data != struct.pack("Q", want) * (self.RECORD // 8):
            complain(self.name, f"a record begins {data[:16].hex()}, want {want:#x}")
        return want

    def step(self, stamp):
        self.put(stamp)
        self.get()

    def check(self):
        flying = [self.get() for _ in range(self.WINDOW)]
        if select.select([self.read], [], [], 0)[0]:
            complain(self.name, "there are more bytes in flight than were sent")
        for stamp in flying:
            if stamp is not None:
                self.put(stamp)


def uncached(fd):
    """What follows is read from the disk."""
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


class Log:
    """A ring of blocks on the disk, each flushed before the next step: memory
    says what must be in it, so that memory and disk are of one instant."""

    BLOCKS = 128

    def __init__(self, path):
        self.fd, self.written = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), []

    def step(self, stamp):
        self.written.append(stamp)
        os.pwrite(self.fd, struct.pack("Q", stamp) * (PAGE // 8), (len(self.written) - 1) % self.BLOCKS * PAGE)
        os.fdatasync(self.fd)

    def check(self):
        uncached(self.fd)
        count = len(self.written)
        size = os.fstat(self.fd).st_size
        if size != min(count, self.BLOCKS) * PAGE:
            complain("disk", f"the log has {size} bytes after {count} blocks")
        for n in range(max(0, count - self.BLOCKS), count):
            block = os.pread(self.fd, PAGE, n % self.BLOCKS * PAGE)
            if block != struct.pack("Q", self.written[n]) * (PAGE // 8):
                complain("disk", f"block {n} of {count} begins {block[:8].hex()}, want {self.written[n]:#x}")


def content(name, size):
    return hashlib.shake_128(name.encode()).digest(size)


class Files:
    """Files that are made anew before each instant: flushed, only in the page
    cache, open at some place, and open without a name."""

    FLUSHED, SIZE = 4, 128 << 10

    def __init__(self, directory):
        self.dir, self.names, self.fds = directory, [], []
        os.makedirs(directory)

    def arm(self, nonce):
        for fd in self.fds:
            os.close(fd)
        for name in self.names:
            os.unlink(f"{self.dir}/{name}")
        flushed = [f"{nonce}-flushed-{n}" for n in range(self.FLUSHED)]
        self.names = flushed + [f"{nonce}-unflushed", f"{nonce}-open"]
        for name in flushed:
            os.fdatasync(fd := self.make(name))
            os.close(fd)
        os.sync()  # the names as well
        self.unlinked = self.make(nonce + "-unlinked")
        os.unlink(f"{self.dir}/{nonce}-unlinked")
        self.open, self.at = self.make(nonce + "-open"), 4321
        os.lseek(self.open, self.at, os.SEEK_SET)
        self.fds, self.nonce = [self.unlinked, self.open], nonce
        os.close(self.make(nonce + "-unflushed"))  # the last thing before the instant

    def make(self, name):
        fd = os.open(f"{self.dir}/{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.pwrite(fd, content(name, self.SIZE), 0)
        return fd

    def check(self):
        listed = sorted(os.listdir(self.dir))
        if listed != sorted(self.names):
            complain("files", f"the directory has {listed}, want {sorted(self.names)}")
        for n in range(self.FLUSHED):
            self.compare("files", f"{self.nonce}-flushed-{n}", True)
        self.compare("unflushed", self.nonce + "-unflushed", False)
        self.compare("unflushed", self.nonce + "-unflushed", True)
        at = os.lseek(self.open, 0, os.SEEK_CUR)
        data = os.read(self.open, 1000)
        os.lseek(self.open, self.at, os.SEEK_SET)
        if at != self.at or data != content(self.nonce + "-open", self.SIZE)[self.at : self.at + 1000]:
            complain("open", f"an open file is at {at}, want {self.at}, or has another content there")
        links = os.fstat(self.unlinked).st_nlink
        if links or os.pread(self.unlinked, self.SIZE, 0) != content(self.nonce + "-unlinked", self.SIZE):
            complain("unlinked", f"a file without a name has {links} names, or another content")

    def compare(self, who, name, from_disk):
        try:
            fd = os.open(f"{self.dir}/{name}", os.O_RDONLY)
        except OSError as err:
            return complain(who, str(err))
        if from_disk:
            uncached(fd)
        if os.pread(fd, 2 * self.SIZE, 0) != content(name, self.SIZE):
            complain(who, f"{name} has another content, from the disk: {from_disk}")
        os.close(fd)


class Marks:
    """One file per era: whose writes this disk has seen."""

    def __init__(self, directory):
        self.dir = directory
        os.makedirs(directory)

    def mark(self, era):
        fd = os.open(f"{self.dir}/{era}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.fdatasync(fd)
        os.close(fd)

    def check(self, eras):
        seen = sorted(int(name) for name in os.listdir(self.dir))
        if seen != sorted(eras):
            complain("files", f"marks of eras {seen}, want {sorted(eras)}")


class Worker:
    """A process that works, naps or sleeps; it shares a few words with us."""

    NAP = 0.1

    def __init__(self, name, work):
        self.name, self.words = name, memoryview(mmap.mmap(-1, PAGE)).cast("d")
        self.status, self.pid = None, os.fork()
        if self.pid == 0:
            try:
                work(self.words)
            finally:
                os._exit(1)

    def alive(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                return True
            self.status = status
        complain(self.name, f"it has ended with status {self.status}")
        return False

    def stopped(self):
        """Its words while it does not run."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        words = self.words[0], self.words[1]
        os.kill(self.pid, signal.SIGCONT)
        return words

    def moves(self):
        before = self.words[0]
        for _ in range(1000):
            if self.words[0] > before:
                return
            time.sleep(0.01)
        complain(self.name, "it has not moved for 10 s")


def working(words):
    while True:
        for _ in range(1000):
            words[0] += 1
            words[1] += 1
        time.sleep(0.01)


def napping(words):
    while True:
        before = time.monotonic()
        time.sleep(Worker.NAP)
        if time.monotonic() - before < Worker.NAP:
            words[1] += 1
        words[0] += 1


def sleeping(_):
    time.sleep(86400)


class Timer:
    """A timerfd that ticks, and an interval timer that is far from its end."""

    TICK, FAR = 0.05, 86400.0

    def __init__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        ns = int(self.TICK * 1e9)
        self.began = time.monotonic()
        if self.fd < 0 or libc.timerfd_settime(self.fd, 0, (ctypes.c_long * 4)(0, ns, 0, ns), None):
            raise OSError(ctypes.get_errno(), "timerfd")
        self.ticks = 0
        signal.setitimer(signal.ITIMER_REAL, self.FAR)
        self.due = time.monotonic() + self.FAR

    def check(self):
        try:
            self.ticks += struct.unpack("Q", os.read(self.fd, 8))[0]
        except BlockingIOError:
            pass
        want = (time.monotonic() - self.began) / self.TICK
        if not want - 20 < self.ticks < want + 2:  # a second's delay of the reader is no fault
            complain("timer", f"{self.ticks} ticks, want {want:.1f}")
        off = min(abs(time.monotonic() + signal.getitimer(signal.ITIMER_REAL)[0] - self.due) for _ in range(20))
        if off > 0.1:
            complain("timer", f"the far timer is {off:.3f} s off")
        if not select.select([self.fd], [], [], 10)[0]:
            complain("timer", "no tick within 10 s")


def loopback():
    listener = socket.create_server(("127.0.0.1", 0))
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    for end in near, far:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.close()
    return near, far


class Watcher:
    """Random numbers of a generator that is seeded again when a page, cleared by each fork, is zero."""

    WIPEONFORK = 18  # MADV_WIPEONFORK

    def __init__(self):
        self.flag = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.flag.madvise(self.WIPEONFORK)
        self.draw()

    def draw(self):
        if not self.flag[0]:
            self.generator = random.Random(os.urandom(32))
            self.flag[0] = 1
        return self.generator.getrandbits(64)


class Canaries:
    def __init__(self, home):
        os.makedirs(home)
        # Before there is a buffer that they would inherit.
        self.workers = [Worker("process", working), Worker("napper", napping), Worker("sleeper", sleeping)]
        self.memory, self.log, self.timer = Memory(), Log(home + "/log"), Timer()
        self.files, self.marks, self.watcher = Files(home + "/files"), Marks(home + "/marks"), Watcher()
        read, write = os.pipe()
        self.tcp = loopback()  # referred to, so that it stays open
        near, far = (end.fileno() for end in self.tcp)
        self.streams = [Stream("pipe", write, read), Stream("tcp", near, far), Stream("tcp", far, near)]
        self.era, self.held, self.last = 0, True, 0
        self.marks.mark(0)
        self.files.arm("begin")
        for _ in range(PRIMED):
            self.memory.step(0)
        self.log.step(PRIMED)

    def work(self):
        """One turn of the writer, always in this order."""
        for _ in range(BATCH):
            self.memory.step(self.era)
        stamp = self.era << 40 | self.memory.steps
        for stream in self.streams:
            stream.step(stamp)
        if self.memory.steps // BATCH % 32 == 0:
            self.log.step(stamp)

    def look_at_clock(self):
        now = time.monotonic_ns()
        if now < self.last:
            complain("uptime", f"it went back by {self.last - now} ns")
        self.last = now

    # Commands.

    def look(self):
        """Nothing but the report."""

    def hold(self):
        self.held = True

    def go(self):
        self.held = False

    def arm(self, nonce):
        self.files.arm(nonce)

    def begin(self, era):
        """From now on all that is written is of this era; at once every page is."""
        self.era = era
        self.marks.mark(era)
        for _ in range(PAGES // BATCH):
            self.work()

    def check(self, eras):
        """Returns what was found wrong since the last check, by canary."""
        global bad
        self.memory.check(eras)
        self.log.check()
        self.files.check()
        self.marks.check(eras)
        self.timer.check()
        for stream in self.streams:
            stream.check()
        process, napper, sleeper = self.workers
        if process.alive():
            process.moves()
            one, other = process.stopped()
            if not 0 <= one - other <= 1:
                complain("process", f"it has counted {one:.0f} and {other:.0f}")
        if napper.alive():
            napper.moves()
            if napper.words[1]:
                complain("napper", f"{napper.words[1]:.0f} of its naps were short")
        if sleeper.alive():
            state = open(f"/proc/{sleeper.pid}/stat").read().rsplit(")", 1)[1].split()[0]
            if state != "S":
                complain("sleeper", f"it is in state {state}")
        found, bad = bad, collections.defaultdict(list)
        return found

    def report(self):
        return {
            "steps": self.memory.steps, "era": self.era, "pid": os.getpid(),
            "mono_ns": time.monotonic_ns(), "boot_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME), "wall_ns": time.time_ns(),
            "drawn": self.watcher.draw(),
        }


def serve(home):
    canaries = Canaries(home)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(home + "/socket.new")
    listener.listen()
    os.rename(home + "/socket.new", home + "/socket")  # there when it answers
    while True:
        canaries.look_at_clock()
        if not select.select([listener], [], [], 0.5 if canaries.held else 0.002)[0]:
            if not canaries.held:
                canaries.work()
            continue
        conn, _ = listener.accept()
        with conn, conn.makefile("rw") as stream:
            request = json.loads(stream.readline())
            try:
                found = getattr(canaries, request.pop("do"))(**request)
                answer = canaries.report() | {"complaints": found or {}}
            except Exception as err:
                answer = {"error": repr(err)}
            stream.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    serve(sys.argv[1])
