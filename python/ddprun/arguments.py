"""Checks of what ctypes would take without a word and change: numbers that do not fit wrap, texts end at a zero byte."""

from __future__ import annotations

from .errors import Invalid
from .interface import ANY_RANK

LARGEST_TAG = 2**32 - 1


def text(value: str | None, what: str) -> bytes | None:
    """@value as a text of C."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise Invalid(f'{what} is a str, not {value!r}')
    if '\0' in value:
        raise Invalid(f'{what} has no zero bytes: {value!r}')
    return value.encode(errors='surrogateescape')


def data(value: str | bytes | bytearray | memoryview, what: str) -> bytes:
    """The bytes of @value. bytes() would make as many zeros of a number."""
    if isinstance(value, str):
        return value.encode(errors='surrogateescape')
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise Invalid(f'{what} is a str or bytes, not {value!r}')
    return bytes(value)


def number(value: int, least: int, most: int, what: str) -> int:
    if not least <= value <= most:
        raise Invalid(f'{what} is {value}, and has to be from {least} to {most}')
    return value


def rank(value: int, what: str) -> int:
    """A number that the library can look at; whether there is such a rank, it says itself."""
    return number(value, 0, ANY_RANK - 1, what)
