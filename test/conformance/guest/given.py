# What the suite asks of a sandbox about the things it was given. It is in the warm interpreter of the snapshot, so
# that its connection is in the memory of clones.
import socket, threading

connection = None


def serve():
    """Sends back what comes, to each client until it ends."""
    server = socket.create_server(("0.0.0.0", 5432))

    def answer(client):
        try:
            while data := client.recv(100):
                client.sendall(data)
        except OSError:
            pass

    def accept():
        while True:
            threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def dial(name):
    global connection
    connection = socket.create_connection((name, 5432), timeout=60)


def exchanged():
    """The state of the connection, after an exchange over it."""
    try:
        connection.sendall(b"x")
        return "open" if connection.recv(1) == b"x" else "closed"
    except AttributeError:
        return "none"
    except (ConnectionResetError, BrokenPipeError):  # the latter from the second try on
        return "reset"


def resolves(name):
    try:
        return bool(socket.getaddrinfo(name, 5432))
    except socket.gaierror as e:
        if e.errno not in (socket.EAI_NONAME, socket.EAI_AGAIN):  # without a network there is no name server
            raise
        return False
