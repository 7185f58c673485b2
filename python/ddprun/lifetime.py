"""The life of a C handle: which calls are in it, so that closing never frees what a call works in.

There is no lock: a signal handler may close in the middle of any line here, and would wait for the one that it interrupted.
What is done to a dict or list is atomic.
"""

from __future__ import annotations

import os
import threading
import time

from .errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

AGAIN = 0.002 # seconds; a call that came in between is interrupted then


class Handle:
    """Owns one address from a C library until close()."""

    __slots__ = ('what', 'pid', '_address', '_calls', '_owned', '_left_over')

    def __init__(self, what: str, address: int) -> None:
        self.what = what
        self.pid = os.getpid()
        self._address: int | None = address # None: no new calls
        self._calls: dict[object, int] = {} # each call in progress, and its thread
        self._owned = [address] # close() takes it out, and frees it then
        self._left_over: list[tuple[int, Callable[[int], None]]] = [] # what the last call frees at its end, and how

    @property
    def closed(self) -> bool:
        return self._address is None

    @property
    def inherited(self) -> bool:
        """Whether this is a child that fork() made after the handle."""
        return os.getpid() != self.pid

    def use(self, function: Callable[..., Any], *arguments: object) -> Any:
        """What function(address, *arguments) returns; the address stays valid until then."""
        call = object()
        try:
            self._calls[call] = threading.get_ident()
            address = self._address
            if address is None:
                raise Invalid(f'this {self.what} is closed: make another one')
            return function(address, *arguments)
        finally:
            self._calls.pop(call, None) # by no function of ours: where one begins, a signal handler may raise
            if self._left_over:
                self._free_left_over()

    def close(self, interrupt: Callable[[int], None], free: Callable[[int], None]) -> None:
        """Refuse new calls, end those in progress by @interrupt, and @free the address: once, when all have ended.

        Waits for the calls of other threads. One of this thread can be in progress, too: a signal handler closes, and the
        call goes on after it. Then the end of that call frees.
        """
        self._address = None
        try:
            address = self._owned.pop()
        except IndexError: # closed before
            return
        try:
            while self._calls_of_others():
                interrupt(address)
                time.sleep(AGAIN)
        except BaseException: # of a signal handler; a later close() goes on
            self._owned.append(address)
            raise
        if self._calls:
            interrupt(address)
        self._left_over.append((address, free))
        self._free_left_over()

    def _calls_of_others(self) -> bool:
        """Whether other threads are in calls. In a child there are none, whatever the parent's were in."""
        own = threading.get_ident()
        others = [call for call, thread in self._calls.copy().items() if thread != own]
        if not self.inherited:
            return bool(others)
        for call in others:
            self._calls.pop(call, None)
        return False

    def _free_left_over(self) -> None:
        if self._calls:
            return
        try:
            address, free = self._left_over.pop()
        except IndexError: # another thread's call ended at the same time
            return
        free(address)
