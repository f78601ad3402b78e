#!/usr/bin/env python3
"""Relays a Unix socket and records each connection's bytes, for the tests of the tap.

    record.py LISTEN RUNTIME PREFIX "what is recorded, in a line"

Writes PREFIX-1.rec, PREFIX-2.rec, ... in the order in which clients connected; ends on SIGTERM or SIGINT. The format:
lines of text that begin with `#`, an empty line, then one record per chunk in the order in which it was passed on:

    1 byte    b"C" the client sent it, b"R" the runtime did
    4 bytes   its length, big endian
    n bytes   the chunk

A side that ended its half is not recorded; the end of the file is the end of the connection. What lies under
tests/data/recordings was made with LISTEN /tmp/x.sock: the path shows in the bytes (`:authority`), so it says nothing
about the machine. Never record real credentials.
"""

import os
import selectors
import signal
import socket
import sys


def relay(listen, runtime, prefix, about):
    server = socket.socket(socket.AF_UNIX)
    server.bind(listen)
    server.listen()
    ready = selectors.DefaultSelector()
    ready.register(server, selectors.EVENT_READ, None)
    count = 0
    while True:
        for key, _ in ready.select():
            if key.data is None:
                count += 1
                client, _ = server.accept()
                upstream = socket.socket(socket.AF_UNIX)
                upstream.connect(runtime)
                file = open(f"{prefix}-{count}.rec", "wb", buffering=0)
                file.write(f"# {about}\n\n".encode())
                ready.register(client, selectors.EVENT_READ, (b"C", upstream, file))
                ready.register(upstream, selectors.EVENT_READ, (b"R", client, file))
            else:
                pump(ready, key.fileobj, *key.data)


def pump(ready, source, direction, sink, file):
    try:
        chunk = source.recv(65536)
        if chunk:
            sink.sendall(chunk)
            file.write(direction + len(chunk).to_bytes(4, "big") + chunk)
            return
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    ready.unregister(source)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        relay(*sys.argv[1:])
    finally:
        os.unlink(sys.argv[1])
