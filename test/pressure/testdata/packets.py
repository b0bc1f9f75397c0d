# Sends as much as it can: to where it may not, to where nobody is, and to its gateway.
import socket

targets = [("203.0.113.7", 9), ("198.51.100.1", 9), ("10.0.0.1", 53)]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
payload = b"x" * 1400
while True:
    for port in range(1, 65536):
        for address, _ in targets:
            try:
                s.sendto(payload, (address, port))
            except OSError:
                pass
