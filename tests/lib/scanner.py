"""scanner.py - makes a program slow to execute, as a virus scanner or a file system far away does: whoever
executes it waits inside the kernel (fanotify's permission events, for root).
"""

import ctypes
import os
import select
import struct
import threading
import time

CLASS_CONTENT, CLOEXEC, MARK_ADD, OPEN_EXEC_PERM, ALLOW, AT_FDCWD = 4, 1, 1, 0x40000, 1, -100
EVENT = struct.Struct('=IBBHQii') # length, version, reserved, length of this, mask, descriptor, pid


class NotPermitted(Exception):
    pass


class Scanner:
    """Each execution of @path takes @seconds(pid) longer; several at a time do not add up. pid is that
    of the process to be, whose environment is still its parent's."""

    def __init__(self, path, seconds):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int,
                                            ctypes.c_char_p]
        self.seconds = seconds
        self.fd = self._checked(self.libc.fanotify_init(CLASS_CONTENT | CLOEXEC, os.O_RDONLY | os.O_CLOEXEC))
        try:
            self._checked(self.libc.fanotify_mark(self.fd, MARK_ADD, OPEN_EXEC_PERM, AT_FDCWD,
                                                  os.fsencode(path)))
        except NotPermitted:
            os.close(self.fd)
            raise
        self.wake = os.pipe2(os.O_CLOEXEC)
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    @staticmethod
    def _checked(result):
        if result < 0:
            raise NotPermitted(f'fanotify: {os.strerror(ctypes.get_errno())}')
        return result

    def _serve(self):
        """Those who wait are let go in the order of their times, all of them when it is over."""
        waiting = []
        while True:
            now = time.monotonic()
            for due, fd in [one for one in waiting if one[0] <= now]:
                waiting.remove((due, fd))
                self._allow(fd)
            timeout = max(0, min(waiting)[0] - now) if waiting else None
            ready, _, _ = select.select([self.fd, self.wake[0]], [], [], timeout)
            if self.wake[0] in ready:
                break
            if self.fd in ready:
                data = os.read(self.fd, 4096)
                for at in range(0, len(data), EVENT.size):
                    *_, fd, pid = EVENT.unpack_from(data, at)
                    waiting.append((time.monotonic() + self.seconds(pid), fd))
        for _, fd in waiting:
            self._allow(fd)

    def _allow(self, fd):
        os.write(self.fd, struct.pack('=iI', fd, ALLOW))
        os.close(fd)

    def close(self):
        os.write(self.wake[1], b'.')
        self.thread.join()
        for fd in (self.fd, *self.wake):
            os.close(fd)
