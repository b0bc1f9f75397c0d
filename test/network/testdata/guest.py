# What the tests ask of a guest. It is in the warm interpreter of all of them, so that a
# test's step costs no start of a program. `certificate` is the far web's.
import errno, hashlib, http.client, json, os, socket, ssl, struct, threading, time, urllib.request

tls = ssl.create_default_context(cadata=certificate)
patience = 30


def fault(e):
    """The error by a name that does not depend on its text."""
    while isinstance(e, urllib.error.URLError) and isinstance(e.reason, Exception):
        e = e.reason
    if isinstance(e, socket.gaierror):
        return {socket.EAI_NONAME: "EAI_NONAME", socket.EAI_NODATA: "EAI_NODATA", socket.EAI_AGAIN: "EAI_AGAIN"}.get(e.errno, str(e))
    if isinstance(e, TimeoutError) and not e.errno:
        return "timeout"
    if isinstance(e, OSError) and not isinstance(e, ssl.SSLError) and e.errno:
        return errno.errorcode.get(e.errno, str(e))
    return type(e).__name__


def outcome(f):
    began = time.monotonic()
    try:
        out = {"value": f()}
    except Exception as e:
        out = {"error": fault(e), "text": str(e)}
    return dict(out, seconds=time.monotonic() - began)


def tell(f):
    print(json.dumps(outcome(f), default=str))


def fetch(url, context=tls, **headers):
    r = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(r, timeout=patience, context=context) as answer:
        return answer.read().decode()


def system():
    """What the system trusts by now; `tls` trusts the far web alone."""
    return ssl.create_default_context(cafile="/etc/ssl/certs/ca-certificates.crt")


def issuer(host, context):
    """Whose word for a host's certificate it is that is taken."""
    with dial(host, 443) as s, context.wrap_socket(s, server_hostname=host) as t:
        return dict(part[0] for part in t.getpeercert()["issuer"])["commonName"]


def dial(host, port):
    return socket.create_connection((host, port), timeout=patience)


def handshake(host, port, name, authority="example.com", by=""):
    """A TLS handshake that says another name, or none, and a request that says one; the
    certificate is not what is tested."""
    loose = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    with dial(host, port) as s, loose.wrap_socket(s, server_hostname=name) as t:
        t.sendall(("GET /?by=%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (by, authority)).encode())
        return t.recv(65536).decode()


def plain(host, port, text):
    """Text that is sent, and what comes until the other side ends."""
    with dial(host, port) as s:
        s.sendall(text.encode())
        parts = []
        while part := s.recv(65536):
            parts.append(part)
        return b"".join(parts).decode()


def exchange(s, text):
    """One echo over a socket that is there."""
    s.sendall(text.encode())
    got = b""
    while len(got) < len(text):
        part = s.recv(65536)
        if not part:
            raise EOFError("the connection has ended")
        got += part
    return got.decode()


def datagrams(host, port):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(patience)
    s.connect((host, port))
    return s


def udp(host, port, text):
    with datagrams(host, port) as s:
        return chat(s, text)


def addresses(name):
    return sorted({a[4][0] for a in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)})


def state():
    """What a fork must leave as it is, and what it must not."""
    read = lambda name: open(name).read()
    eth0 = "/sys/class/net/eth0/"
    return {
        "mac": read(eth0 + "address").strip(),
        "carrier_changes": read(eth0 + "carrier_changes").strip(),
        "operstate": read(eth0 + "operstate").strip(),
        "routes": read("/proc/net/route"),
        "routes6": sorted(l.split()[0] + "/" + l.split()[1] + " " + l.split()[4]
                          for l in read("/proc/net/ipv6_route").splitlines() if l.endswith("eth0")),
        "neighbours": sorted(tuple(l.split()[i] for i in (0, 2, 3)) for l in read("/proc/net/arp").splitlines()[1:]),
        "resolv": read("/etc/resolv.conf"),
    }


class Download(threading.Thread):
    """Receives until the other side ends. The outcome is there in the clone when nobody has
    asked for it."""

    def __init__(self, host, port):
        super().__init__(daemon=True)
        self.out, self.got, self.sum = None, 0, hashlib.sha256()
        self.socket = dial(host, port)
        self.socket.settimeout(None)  # a recv that blocks, in the kernel
        self.start()

    def receive(self):
        while part := self.socket.recv(65536):
            self.got += len(part)
            self.sum.update(part)
        return self.sum.hexdigest()

    def run(self):
        self.out = dict(outcome(self.receive), got=self.got)


def met(by, context=tls):
    """What a VM meets that was just made, of what was open and at once."""
    caller.on = False  # it was to be first, and many of it are a load on all
    return {
        "recv": download.out,  # before all else: the connection is reset before it is ready
        "datagram": outcome(lambda: chat(sock, "of another")),
        "page": outcome(lambda: fetch("http://example.com/")),
        "secure": outcome(lambda: fetch("https://example.com/?by=" + by, context, Authorization="mine")),
        "denied": outcome(lambda: addresses("secret.example.org")),
        "state": state(),
        "later": "later" in globals(),
    }


class Server(threading.Thread):
    """Sends back what comes, on one address of the guest."""

    def __init__(self, address, port):
        super().__init__(daemon=True)
        self.listener = socket.create_server((address, port))
        self.start()

    def run(self):
        while True:
            s, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        try:
            with s:
                while part := s.recv(65536):
                    s.sendall(part)
        except OSError:
            pass  # of a connection that a fork has cut


class Answerer(threading.Thread):
    """Keeps one connection out, and sends back what comes."""

    def __init__(self, host, port):
        super().__init__(daemon=True)
        self.socket = dial(host, port)
        self.socket.settimeout(None)
        self.start()

    serve = Server.serve

    def run(self):
        self.serve(self.socket)


class Caller(threading.Thread):
    """Connects again and again. A clone of it begins in the middle."""

    def __init__(self, host, port):
        super().__init__(daemon=True)
        self.far, self.on = (host, port), True
        self.start()

    def run(self):
        while self.on:
            try:
                dial(*self.far).close()
            except OSError:
                pass  # in a clone: the one that it inherited
            time.sleep(0.05)


def chat(s, text):
    s.send(text.encode())
    return s.recv(65536).decode()


def ping(address):
    """An echo of ICMP; the kernel makes the checksum and the identifier."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as s:
        s.settimeout(patience)
        s.connect((address, 0))
        s.send(struct.pack(">BBHHH", 8, 0, 0, 0, 1) + b"forkd")
        return s.recv(1024)[8:].decode()


def bulk(host, port, size):
    """Sends and receives so many bytes; each side tells the other what it has got."""
    block, sent, got = os.urandom(1 << 16), hashlib.sha256(), hashlib.sha256()
    with dial(host, port) as s:
        s.sendall(struct.pack(">Q", size))
        for _ in range(size // len(block)):
            s.sendall(block)
            sent.update(block)
        theirs, left = receive_exactly(s, 32).hex(), size
        buffer = bytearray(1 << 18)
        while left:
            n = s.recv_into(buffer, min(left, len(buffer)))
            if not n:
                raise EOFError("%d bytes are missing" % left)
            got.update(memoryview(buffer)[:n])
            left -= n
        s.sendall(got.digest())
        verdict = receive_exactly(s, 2).decode()
    return {"up": sent.hexdigest() == theirs, "down": verdict == "ok"}


def receive_exactly(s, n):
    got = b""
    while len(got) < n:
        part = s.recv(n - len(got))
        if not part:
            raise EOFError("%d bytes are missing" % (n - len(got)))
        got += part
    return got
