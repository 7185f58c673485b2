"""How the ranks of a new communicator meet: what Communicator's arguments become in struct ddp_comm_options."""

from __future__ import annotations

import ctypes
import time
from datetime import timedelta

from . import arguments, durations, interface, libraries
from .errors import Error, Invalid
from .interface import STATUS_NUMBERS, CommOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class AnyStore(Protocol):
        """What ddprun.Store and torch.distributed.Store have, and the meeting needs."""

        def set(self, key: str, value: Any, /) -> Any: ...
        def get(self, key: str, /) -> bytes: ...
        def wait(self, keys: list[str], timeout: timedelta, /) -> Any: ...
        def check(self, keys: list[str], /) -> bool: ...
        def delete_key(self, key: str, /) -> bool: ...


class Meeting:
    """Options, and what they point to; alive during ddp_comm_init()."""

    def __init__(self, *, store: AnyStore | None, unique_id: bytes | None, endpoint: str | None, prefix: str | None,
                 name: str | None, rank: int | None, world_size: int | None, init_timeout: timedelta | None,
                 timeout: timedelta | None, force_tcp: bool, algorithm: str) -> None:
        if (rank is None) != (world_size is None):
            raise Invalid(f'rank is {rank} and world_size is {world_size}: pass both or neither (then RANK and WORLD_SIZE '
                          f'are used)')
        if rank is not None and world_size is not None and not 0 <= rank < world_size < 2**32:
            raise Invalid(f'rank {rank} does not exist in a world of {world_size} ranks')
        if algorithm not in interface.ALGORITHMS:
            raise Invalid(f'algorithm is {algorithm!r}; there are {", ".join(interface.ALGORITHMS)}')
        self.kv = KvOverStore(store) if store is not None else None
        self.options = CommOptions(
            size=ctypes.sizeof(CommOptions), store_endpoint=arguments.text(endpoint, 'endpoint'),
            store_prefix=arguments.text(prefix, 'prefix'), name=arguments.text(name, 'name'),
            rank=rank or 0, world_size=world_size or 0, init_timeout_ms=durations.optional(init_timeout, 'init_timeout'),
            timeout_ms=durations.optional(timeout), force_tcp=force_tcp, algorithm=interface.ALGORITHMS[algorithm])
        if self.kv is not None:
            self.options.kv = ctypes.pointer(self.kv.table)
        if unique_id is not None:
            self.options.unique_id = ctypes.pointer(_unique_id(unique_id))

    def join(self) -> int:
        """Block until all ranks have joined; the communicator's address."""
        address = ctypes.c_void_p()
        try:
            libraries.call(libraries.comm().ddp_comm_init, ctypes.byref(self.options), ctypes.byref(address))
        except Error as error:
            raise error from (self.kv.failure if self.kv is not None else None)
        assert address.value is not None
        return address.value


def _unique_id(data: bytes) -> interface.UniqueId:
    if len(data) != ctypes.sizeof(interface.UniqueId):
        raise Invalid(f'the unique id has {len(data)} bytes, and one of get_unique_id() has '
                      f'{ctypes.sizeof(interface.UniqueId)}')
    return interface.UniqueId.from_buffer_copy(data)


def get_unique_id() -> bytes:
    """Make an id in the process that will be rank 0; each rank passes it to Communicator(unique_id=...).

    It is for one communicator. Whoever knows it can join: do not publish it.
    """
    made = interface.UniqueId()
    libraries.call(libraries.comm().ddp_get_unique_id, ctypes.byref(made))
    return bytes(made)


class KvOverStore:
    """A struct ddp_kv whose functions call the methods of a store in Python."""

    def __init__(self, store: AnyStore) -> None:
        self.store = store
        self.failure: Exception | None = None # what a method of the store has raised
        self.table = interface.Kv(
            size=ctypes.sizeof(interface.Kv), set=interface.KV_SET(self._set), get=interface.KV_GET(self._get),
            wait=interface.KV_WAIT(self._wait), remove=interface.KV_REMOVE(self._remove))

    def _try(self, error: Any, action: Callable[[], int]) -> int:
        try:
            return action()
        except Exception as failure: # a callback from C must not raise
            self.failure = failure
            status = failure.status if isinstance(failure, Error) else 'system'
            error.contents.status = STATUS_NUMBERS[status]
            error.contents.msg = f'the store raised {type(failure).__name__}: {failure}'.encode()[:1023]
            return STATUS_NUMBERS[status]

    def _set(self, _: int, key: bytes, value: int, length: int, error: Any) -> int:
        def action() -> int:
            self.store.set(key.decode(), ctypes.string_at(value, length) if length else b'')
            return 0
        return self._try(error, action)

    def _get(self, _: int, key: bytes, room: int, size: int, ret_length: Any, error: Any) -> int:
        def action() -> int:
            if not self.store.check([key.decode()]):
                return STATUS_NUMBERS['not-found']
            value = self.store.get(key.decode())
            ret_length[0] = len(value)
            ctypes.memmove(room, value, min(len(value), size))
            return 0
        return self._try(error, action)

    def _wait(self, _: int, key: bytes, timeout_ms: int, error: Any) -> int:
        deadline = time.monotonic() + timeout_ms / 1000

        def action() -> int:
            try:
                self.store.wait([key.decode()], timedelta(milliseconds=timeout_ms))
            except Exception as failure: # which class it is for a time limit depends on the store
                if time.monotonic() < deadline and not isinstance(failure, TimeoutError):
                    raise
                return STATUS_NUMBERS['timeout']
            return 0
        return self._try(error, action)

    def _remove(self, _: int, key: bytes, error: Any) -> int:
        def action() -> int:
            self.store.delete_key(key.decode())
            return 0
        return self._try(error, action)
