package branchbench

// setUp makes the guest's Python write over a buffer of so many MiB, at so many MiB per second. It
// also starts a process that stamps its clock in a loop and keeps the largest gap in a shared page.
const setUp = `import mmap, struct, subprocess, sys, threading, time
bench_buf = bytearray(%d << 20)
def bench_write(rate):
    mib, at, begun, n = 1 << 20, 0, time.monotonic(), 0
    while len(bench_buf):
        bench_buf[at:at + mib:4096] = bytes([n & 255]) * 256
        at, n = (at + mib) %% len(bench_buf), n + 1
        time.sleep(max(0, begun + n / rate - time.monotonic()))
threading.Thread(target=bench_write, args=(%d,), daemon=True).start()
bench_file = open('/tmp/bench-gap', 'w+b')
bench_file.write(bytes(4096)); bench_file.flush()
bench_page = mmap.mmap(bench_file.fileno(), 4096)
bench_stamps = subprocess.Popen([sys.executable, '-c', '''
import mmap, struct, time
file = open("/tmp/bench-gap", "r+b")
page = mmap.mmap(file.fileno(), 4096)
last = time.monotonic()
while True:
    now = time.monotonic()
    if now - last > struct.unpack_from("d", page, 0)[0]:
        struct.pack_into("d", page, 0, now - last)
    last = now
'''])
bench_end = time.monotonic() + 20
while bench_stamps.poll() is None and struct.unpack_from('d', bench_page, 0)[0] == 0 and time.monotonic() < bench_end:
    time.sleep(0.2)
time.sleep(1)
if bench_stamps.poll() is not None or struct.unpack_from('d', bench_page, 0)[0] == 0:
    raise RuntimeError('the process that stamps its clock does not run')`

// readGap returns the largest gap since the last read in milliseconds, and resets it.
const readGap = `bench_gap = struct.unpack_from('d', bench_page, 0)[0]
struct.pack_into('d', bench_page, 0, 0.0)
str(bench_gap * 1000)`
