"""Time limits: datetime.timedelta for users, milliseconds for the C libraries."""

from __future__ import annotations

from datetime import timedelta

from .errors import Invalid

LONGEST = 0xffffffff # milliseconds


def milliseconds(limit: timedelta, what: str = 'timeout') -> int:
    """@limit, rounded up, so that a positive one never becomes 0, which has meanings of its own."""
    if not isinstance(limit, timedelta):
        raise Invalid(f'{what} is {limit!r}: pass a datetime.timedelta, such as timedelta(seconds=30)')
    value = -(-limit // timedelta(milliseconds=1))
    if value < 0:
        raise Invalid(f'{what} is negative: {limit}')
    return min(value, LONGEST)


def optional(limit: timedelta | None, what: str = 'timeout') -> int:
    """@limit, or 0 for None: then the library's own limit holds. A limit of zero would mean that too: it is refused."""
    if limit is None:
        return 0
    value = milliseconds(limit, what)
    if value == 0:
        raise Invalid(f'{what} is zero: pass a positive one, or None for the usual one')
    return value
