"""The life of a C handle: which calls are in it, so that closing never frees what another thread works in.

The lists below count calls because to append and to pop is atomic, and takes less time than a lock.
"""

from __future__ import annotations

import os
import threading

from .errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN = 0.02 # seconds; a call that came in between is interrupted then


class Handle:
    """Owns one address from a C library until close()."""

    __slots__ = ('what', 'pid', '_address', '_calls', '_left', '_lock')

    def __init__(self, what: str, address: int) -> None:
        self.what = what
        self.pid = os.getpid()
        self._address: int | None = address
        self._calls: list[None] = []
        self._left: threading.Event | None = None
        self._lock = threading.Lock()

    @property
    def closed(self) -> bool:
        return self._address is None

    @property
    def inherited(self) -> bool:
        """Whether this is a child that fork() made after the handle."""
        return os.getpid() != self.pid

    def enter(self) -> int:
        """The address, for one call; leave() must follow."""
        self._calls.append(None)
        address = self._address
        if address is None:
            self.leave()
            raise Invalid(f'this {self.what} is closed: make another one')
        return address

    def leave(self) -> None:
        self._calls.pop()
        left = self._left
        if left is not None and not self._calls:
            left.set()

    def close(self, interrupt: Callable[[int], None]) -> int | None:
        """Refuse new calls, end those in progress by @interrupt, and hand out the address, to be freed: once."""
        with self._lock:
            address, self._address = self._address, None
        if address is None or self.inherited:
            return address
        self._left = threading.Event()
        while self._calls:
            interrupt(address)
            self._left.wait(AGAIN)
        return address
