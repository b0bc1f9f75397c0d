"""A server with TLS and bson, which runs when the snapshot is taken and has used its random generators."""
import http.server
import os
import random
import ssl
import uuid

import bson

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def context():
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain("/tmp/cert.pem", "/tmp/key.pem")
    return c


def boot_id():
    with open(BOOT_ID) as f:
        return f.read()


class Server(http.server.HTTPServer):
    boot, tls = boot_id(), context()

    def get_request(self):
        connection, address = self.socket.accept()
        if boot_id() != self.boot:
            self.boot = boot_id()
            ssl.RAND_add(os.urandom(32), 32)  # OpenSSL
            random.seed()  # the module's generator
            bson.ObjectId._pid = None  # as after os.fork
            self.tls = context()  # the keys of session tickets
        return self.tls.wrap_socket(connection, server_side=True), address


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        values = [str(bson.ObjectId())[8:18], uuid.uuid4(), random.random(), ssl.RAND_bytes(16).hex()]
        body = "".join("%s\n" % v for v in values).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


Server(("localhost", 8443), Handler).serve_forever()
