"""Finds and loads libddpcomm and libddpstore: beside the package, in DDPRUN_LIBRARY_PATH, by the loader.

Each is loaded when it is first used, and must be of this package's version. Loaded libraries are kept: a process has one.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import os

from . import interface
from .errors import LibraryError, exception
from .interface import CError
from .version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

VARIABLE = 'DDPRUN_LIBRARY_PATH'
SONAMES = {'ddpcomm': 0, 'ddpstore': 1}
VERSION_CALLS = {'ddpcomm': 'ddp_version', 'ddpstore': 'ddp_store_version'}
PACKAGE = os.path.dirname(os.path.abspath(__file__))
# Where a wheel has them (meson-python), and where someone may have put them.
BESIDE = (os.path.join(os.path.dirname(PACKAGE), '.ddprun.mesonpy.libs'), PACKAGE)


def _files(name: str) -> Iterator[str]:
    """Candidates, best first; the last is for the loader, which looks in its own places."""
    folders = list(BESIDE)
    folders += [folder for folder in os.environ.get(VARIABLE, '').split(os.pathsep) if folder]
    for folder in folders:
        yield from sorted(glob.glob(os.path.join(glob.escape(folder), f'lib{name}.so*')))[:1]
    yield f'lib{name}.so.{SONAMES[name]}'


def _load(name: str, calls: dict[str, list[object]], others: dict[str, tuple[object, list[object]]]) -> ctypes.CDLL:
    path = find(name)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise LibraryError(_why_not(name, path, str(error))) from None
    _check_version(library, path, VERSION_CALLS[name])
    declared = {call: (ctypes.c_int, [*arguments, ctypes.POINTER(CError)]) for call, arguments in calls.items()}
    for call, (result, arguments) in {**declared, **others}.items():
        function = getattr(library, call)
        function.restype, function.argtypes = result, arguments
    return library


def find(name: str) -> str:
    """The path of the library, or its name for the loader."""
    return next(_files(name))


def _why_not(name: str, path: str, problem: str) -> str:
    """The loader names the file that it did not find, which need not be the one that it was asked for."""
    needed = problem.partition(':')[0]
    if 'cannot open shared object file' in problem and needed != path:
        return (f'lib{name} {VERSION} is there ({path}), but a library that it needs is not: {needed}; install that, or '
                f'build the package where it is used')
    if os.path.exists(path):
        return f'lib{name} {VERSION} is there, but cannot be loaded ({problem}); install the package once more'
    return (f'lib{name} {VERSION} was not found ({problem}): install it (make install), install the package as a wheel, '
            f'which has it, or name the folder that has it in {VARIABLE}')


def _check_version(library: ctypes.CDLL, path: str, function: str) -> None:
    try:
        ask = getattr(library, function)
    except AttributeError:
        found = 'of an older version'
    else:
        ask.restype = ctypes.c_char_p
        found = f'version {ask().decode()}'
    if found != f'version {VERSION}':
        raise LibraryError(f'{path} is {found}, and this package (in {PACKAGE}) needs {VERSION}: install both '
                           f'from one release, or name the folder of the right library in {VARIABLE}')


@functools.cache
def comm() -> Any:
    """libddpcomm."""
    return _load('ddpcomm', interface.COMM_CALLS, interface.COMM_OTHERS)


@functools.cache
def store() -> Any:
    """libddpstore."""
    return _load('ddpstore', interface.STORE_CALLS, interface.STORE_OTHERS)


def call(function: Any, *arguments: object) -> None:
    """Call a function whose last argument is a struct ddp_error; raise what it reports."""
    error = CError()
    status = function(*arguments, ctypes.byref(error))
    if status != 0:
        raise exception(error, status)
