package netbench

// carry makes the guest's Python carry bytes over a connection, in either direction. The far end
// answers like Answer. It returns the seconds by the guest's clock.
const carry = `import socket, threading, time
def bench_carry(c, n, back):
    buf = bytearray(1 << 18)
    c.sendall(b'%s %d\n' % (b'send' if back else b'take', n))
    began, left = time.monotonic(), n
    while left:
        if back:
            got = c.recv_into(buf, min(left, len(buf)))
            if not got:
                raise EOFError('%d of %d bytes are missing' % (left, n))
            left -= got
        else:
            c.sendall(buf)
            left -= len(buf)
    if not back and c.recv(1) != b'.':
        raise EOFError('no answer')
    return time.monotonic() - began
def bench_connect(port):
    end = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(('host.forkd.internal', port), 20)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
def bench_accept(n, back):
    bench_took.append(bench_carry(bench_listener.accept()[0], n, back))
`

// listenInGuest listens for a connection to carry bytes over. Parameters: number of bytes, back.
const listenInGuest = `bench_took, bench_listener = [], socket.socket()
bench_listener.bind(('127.0.0.1', 0))
bench_listener.listen()
bench_thread = threading.Thread(target=bench_accept, args=(%d, %s), daemon=True)
bench_thread.start()
str(bench_listener.getsockname()[1])`

// tookInGuest returns the duration in seconds.
const tookInGuest = `bench_thread.join(300)
bench_listener.close()
str(bench_took[0])`

// connectFromGuest carries bytes to or from the daemon's host. Parameters: port, number of bytes,
// back.
const connectFromGuest = `bench_conn = bench_connect(%d)
bench_secs = bench_carry(bench_conn, %d, %s)
bench_conn.close()
str(bench_secs)`

// download starts an endless download from a port of the daemon's host.
const download = `def bench_download(c):
    while True:
        bench_carry(c, 1 << 30, True)
bench_thread = threading.Thread(target=bench_download, args=(bench_connect(%d),), daemon=True)
bench_thread.start()
time.sleep(1)
if not bench_thread.is_alive():
    raise RuntimeError('the download has ended')`
