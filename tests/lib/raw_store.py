"""raw_store.py - speaks to the store byte by byte: any number of requests at once, answers as they come."""

import select
import socket
import struct

AGENT, WORKER, OBSERVER = 0, 1, 2
SET, GET, TRY_GET, DELETE, LIST, STATS, WATCH = 16, 17, 18, 22, 23, 25, 27
SESSION_OPEN, SESSION_KEEP, SESSION_CLOSE, SET_EPHEMERAL, FENCE = 29, 30, 31, 32, 35
HEADER = struct.Struct('<IbbHQ')


def packed(text):
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack('<I', len(raw)) + raw


def frame(kind, payload, number):
    return HEADER.pack(len(payload), kind, 0, 0, number) + payload


def set_frame(key, value, number):
    return frame(SET, packed(key) + packed(value), number)


def delete_frame(key, number):
    return frame(DELETE, packed(key), number)


def list_frame(prefix, number):
    return frame(LIST, packed(prefix), number)


class RawStore:
    """A connection that has been welcomed. An answer is (type, status, id, payload)."""

    def __init__(self, endpoint, job='', role=AGENT, epoch=0):
        host, _, port = endpoint.rpartition(':')
        self.socket = socket.create_connection((host.strip('[]'), int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._greet(job, role, epoch)
        except BaseException:
            self.close()
            raise

    def _greet(self, job, role, epoch):
        hello = struct.pack('<IBQ', 0, role, epoch) + packed(job) + bytes(32) + packed('')
        self.data = b''
        self.socket.sendall(b'DDPS' + struct.pack('<HH', 3, 3) + frame(1, hello, 1))
        while len(self.data) < 8:
            self._receive()
        self.data = self.data[8:]
        kind, status, _, _ = self.answer()
        assert (kind, status) == (1, 0), (kind, status)

    def close(self):
        self.socket.close()

    def _receive(self):
        more = self.socket.recv(1 << 20)
        if not more:
            raise ConnectionError('the store has closed the connection')
        self.data += more

    def _taken(self):
        """The first whole answer of what has come; None: there is none."""
        if len(self.data) < HEADER.size:
            return None
        size, kind, status, _, number = HEADER.unpack_from(self.data)
        if len(self.data) < HEADER.size + size:
            return None
        payload = self.data[HEADER.size:HEADER.size + size]
        self.data = self.data[HEADER.size + size:]
        return kind, status, number, payload

    def answer(self):
        while (answer := self._taken()) is None:
            self._receive()
        return answer

    def ask(self, kind, payload, number=1):
        self.socket.sendall(frame(kind, payload, number))
        return self.answer()

    def exchange(self, requests, count):
        """Send the bytes @requests and read @count answers meanwhile; how many have which status."""
        statuses = {}
        view, left = memoryview(requests), count
        while left > 0:
            readable, writable, _ = select.select([self.socket], [self.socket] if view else [], [])
            if writable:
                view = view[self.socket.send(view[:1 << 16]):]
            if readable:
                self._receive()
                left -= self._count(statuses)
        return statuses

    def _count(self, statuses):
        at = count = 0
        while len(self.data) - at >= HEADER.size:
            size, _, status, _, _ = HEADER.unpack_from(self.data, at)
            if len(self.data) - at < HEADER.size + size:
                break
            statuses[status] = statuses.get(status, 0) + 1
            at += HEADER.size + size
            count += 1
        self.data = self.data[at:]
        return count
