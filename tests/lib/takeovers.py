"""takeovers.py - writers that follow the leader of several ddprund, and note each write that was acknowledged."""

import struct
import threading
import time

from raw_store import LIST, SET, RawStore, packed


def try_connect(endpoint):
    """A connection to the store at @endpoint if it serves; else None."""
    try:
        return RawStore(endpoint)
    except (OSError, AssertionError):
        return None


def connect_any(endpoints, over=lambda: False):
    while not over():
        for endpoint in endpoints:
            store = try_connect(endpoint)
            if store:
                return store
        time.sleep(0.002)
    return None


class Writer(threading.Thread):
    """Sets one key after another, and notes the version of each write that was acknowledged, and its times."""

    def __init__(self, name, endpoints, filling=''):
        super().__init__(daemon=True)
        self.name, self.endpoints, self.filling = name, endpoints, filling
        self.acknowledged = {} # key: version
        self.times = [] # of each: when it was sent, and acknowledged
        self.stopped = False

    def run(self):
        store, number = None, 0
        while not self.stopped:
            if store is None:
                store = connect_any(self.endpoints, lambda: self.stopped)
                continue
            number += 1
            key = f'{self.name}/{number:06}'
            try:
                begun = time.monotonic()
                kind, status, _, payload = store.ask(SET, packed(key) + packed(str(number) + self.filling))
            except OSError: # perhaps applied, perhaps not
                store.close()
                store = None
                continue
            if (kind, status) == (SET, 0):
                self.acknowledged[key], = struct.unpack_from('<Q', payload)
                self.times.append((begun, time.monotonic()))
            time.sleep(0.001)
        if store:
            store.close()

    def first_after(self, moment):
        """When the first write that was sent after @moment was acknowledged; None: not yet."""
        at = len(self.times)
        while at > 0 and self.times[at - 1][0] > moment:
            at -= 1
        return self.times[at][1] if at < len(self.times) else None

    def stop(self):
        self.stopped = True
        self.join()


def listed(endpoints, prefix):
    """The keys with @prefix that the leader has."""
    store = connect_any(endpoints)
    _, status, _, payload = store.ask(LIST, packed(prefix))
    store.close()
    assert status == 0, status
    keys, at = set(), 4
    while at < len(payload):
        size, = struct.unpack_from('<I', payload, at)
        keys.add(payload[at + 4:at + 4 + size].decode())
        at += 4 + size
    return keys


def check(case, writers, endpoints):
    """All acknowledged keys are there, and no two writes had one version. How many keys."""
    count, versions = 0, set()
    for writer in writers:
        lost = set(writer.acknowledged) - listed(endpoints, f'{writer.name}/')
        case.assertEqual(lost, set(), 'acknowledged writes are lost')
        mine = list(writer.acknowledged.values())
        case.assertEqual(mine, sorted(mine), 'versions of one writer go back')
        versions.update(mine)
        count += len(mine)
    case.assertEqual(len(versions), count, 'two writes have one version')
    return count
