"""Finds the elements of whatever a program passes: address, number, type. Keeps them where they are; copies nothing.

In this order: the buffer protocol (bytearray, array, memoryview, NumPy, ctypes), DLPack (PyTorch, CuPy, JAX),
__cuda_array_interface__ (Numba), __array_interface__.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_char_p, c_int, c_ssize_t, c_void_p, py_object

from . import dlpack
from .errors import Invalid
from .interface import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Kinds of elements by the letters of the struct module, and of NumPy's "typestr".
LETTERS = {**dict.fromkeys('bhilqn', 'int'), **dict.fromkeys('BHILQNc', 'uint'), **dict.fromkeys('efd', 'float'),
           'Zf': 'complex', 'Zd': 'complex', '?': 'bool'}
TYPESTRS = {'i': 'int', 'u': 'uint', 'f': 'float', 'c': 'complex', 'b': 'bool'}
CONTIGUOUS_COPY = 'pass a contiguous copy, such as numpy.ascontiguousarray(a) or tensor.contiguous()'
MOST_BYTES = 2**63 - 1
CUDA_LEGACY_STREAM = 1 # of __cuda_array_interface__: the default stream, which is NULL for the library


class Buffer:
    """Elements in memory, valid while this object lives."""

    __slots__ = ('address', 'count', 'dtype', 'read_only', 'stream', 'keep', 'on_device')

    def __init__(self, address: int | None, count: int, dtype: str, read_only: bool, stream: int | None,
                 keep: object, on_device: bool = False) -> None:
        self.address = address
        self.count = count
        self.dtype = dtype
        self.read_only = read_only
        self.stream = stream # in which the owner of device memory works; None: the default one
        self.keep = keep
        self.on_device = on_device and count > 0 # an operation on it is only enqueued

    def as_type(self, dtype: str) -> Buffer:
        """The same bytes as elements of @dtype."""
        if dtype == self.dtype:
            return self
        _, size = element(dtype)
        count, rest = divmod(self.count * element(self.dtype)[1], size)
        if rest:
            raise Invalid(f'{self.count} elements of {self.dtype} are not a whole number of {dtype}')
        return Buffer(self.address, count, dtype, self.read_only, self.stream, self.keep, self.on_device)


def element(dtype: str) -> tuple[int, int]:
    """The number and the bytes of an element type."""
    try:
        return DTYPES[dtype]
    except KeyError:
        raise Invalid(f'there is no element type {dtype!r}; there are {", ".join(DTYPES)}') from None


def buffer(owner: object, what: str = 'the buffer', dtype: str | None = None, stream: int | None = None) -> Buffer:
    """The elements of @owner; @dtype (a name) says what they are where it cannot: bfloat16 as uint16, say."""
    try:
        memory = memoryview(owner) # type: ignore[arg-type]
    except TypeError:
        found = _exported(owner, what, stream)
    except (BufferError, ValueError) as error: # an element type that the protocol has no letter for
        raise Invalid(f'{what} has no buffer to use: {error}') from None
    else:
        found = _from_memory(memory, what, dtype)
    return found if dtype is None else found.as_type(dtype)


def written(owner: object, what: str = 'the buffer', dtype: str | None = None, stream: int | None = None) -> Buffer:
    """The same of a buffer that will be written to."""
    found = buffer(owner, what, dtype, stream)
    if found.read_only:
        raise Invalid(f'{what} is read-only, and the result is to be written to it')
    return found


# ---- the buffer protocol ----

class _PyBuffer(Structure):
    """Py_buffer, which is part of Python's stable interface."""
    _fields_ = [('buf', c_void_p), ('obj', py_object), ('len', c_ssize_t), ('itemsize', c_ssize_t), ('readonly', c_int),
                ('ndim', c_int), ('format', c_char_p), ('shape', c_void_p), ('strides', c_void_p),
                ('suboffsets', c_void_p), ('internal', c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.restype, _get_buffer.argtypes = c_int, [py_object, c_void_p, c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype, _release_buffer.argtypes = None, [c_void_p]


class _Constant:
    """Holds the buffer of an object that ctypes refuses, as it must not be written to."""

    def __init__(self, memory: memoryview) -> None:
        self.view = _PyBuffer()
        _get_buffer(memory, ctypes.addressof(self.view), 0)

    def __del__(self) -> None:
        _release_buffer(ctypes.addressof(self.view))


def _type_of_letters(letters: str, size: int) -> str | None:
    if letters[:1] in '@=<' and letters[1:]:
        letters = letters[1:]
    kind = LETTERS.get(letters)
    return 'bool' if kind == 'bool' else f'{kind}{8 * size}' if kind else None


_types: dict[tuple[str, int], str | None] = {} # what _type_of_letters() has answered


def _from_memory(memory: memoryview, what: str, dtype: str | None) -> Buffer:
    key = memory.format, memory.itemsize
    try:
        name = _types[key]
    except KeyError:
        name = _types[key] = _type_of_letters(*key)
    if name is None:
        if dtype is None or memory.itemsize != element(dtype)[1]:
            raise Invalid(f'{what} has elements of the format {memory.format!r}, {memory.itemsize} bytes each, which is no '
                          f'element type here; dtype= names one of that size')
        name = dtype
    if not memory.c_contiguous:
        raise Invalid(f'{what} is not contiguous (shape {memory.shape}, strides {memory.strides}): {CONTIGUOUS_COPY}')
    count = memory.nbytes // memory.itemsize if memory.itemsize else 0
    if count == 0:
        return Buffer(None, 0, name, memory.readonly, None, memory)
    if memory.readonly:
        constant = _Constant(memory)
        return Buffer(constant.view.buf, count, name, True, None, constant)
    first = ctypes.c_char.from_buffer(memory)
    return Buffer(ctypes.addressof(first), count, name, False, None, first)


# ---- other ways ----

def _exported(owner: Any, what: str, stream: int | None) -> Buffer:
    if hasattr(owner, '__dlpack__'):
        return _from_dlpack(owner, what, stream)
    for name in ('__cuda_array_interface__', '__array_interface__'):
        interface = getattr(owner, name, None)
        if interface is not None:
            return _from_interface(owner, interface, what, name == '__cuda_array_interface__')
    raise Invalid(f'{what} is a {type(owner).__name__}, which has neither the buffer protocol nor __dlpack__, '
                  f'__cuda_array_interface__ or __array_interface__')


def _check_strides(shape: tuple[int, ...], strides: tuple[int, ...], size: int, what: str) -> None:
    """Row after row without gaps; strides in bytes. Those of axes with one element do not matter."""
    expected = size
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent > 1 and stride != expected:
            raise Invalid(f'{what} is not contiguous (shape {shape}, strides {strides}): {CONTIGUOUS_COPY}')
        expected *= extent


def _count(shape: tuple[int, ...], size: int, what: str) -> int:
    """The number of elements, of @size bytes each."""
    count = 1
    for extent in shape:
        count *= extent
    if any(extent < 0 for extent in shape) or count * size > MOST_BYTES:
        raise Invalid(f'{what} has the shape {shape}, which no memory has')
    return count


def _from_dlpack(owner: object, what: str, stream: int | None) -> Buffer:
    try:
        capsule = dlpack.capsule_of(owner, stream)
    except Exception as error: # of any class: the tensor's own library refuses, a sparse one say
        raise Invalid(f'{what} cannot be exported by its __dlpack__(): {error}') from error
    tensor, read_only = dlpack.read(capsule)
    name = dlpack.DTYPES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        raise Invalid(f'{what} has elements of a type (code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes in '
                      f'DLPack) that is no element type here')
    if tensor.device_type not in (dlpack.CPU, dlpack.CUDA, dlpack.CUDA_HOST):
        raise Invalid(f'{what} is on a device of kind {tensor.device_type} in DLPack: move it to the host or to a CUDA device')
    shape = tuple(tensor.shape[:tensor.ndim])
    size = element(name)[1]
    count = _count(shape, size, what)
    if count and tensor.strides:
        _check_strides(shape, tuple(stride * size for stride in tensor.strides[:tensor.ndim]), size, what)
    address = tensor.data + tensor.byte_offset if count else None
    return Buffer(address, count, name, read_only, stream, (owner, capsule), tensor.device_type == dlpack.CUDA)


def _from_interface(owner: object, interface: dict[str, Any], what: str, on_device: bool) -> Buffer:
    typestr, shape = interface['typestr'], tuple(interface['shape'])
    kind, size = TYPESTRS.get(typestr[1:2]), int(typestr[2:])
    name = 'bool' if kind == 'bool' else f'{kind}{8 * size}'
    if name not in DTYPES or typestr[0] == '>':
        raise Invalid(f'{what} has elements of the type {typestr!r}, which is no element type here')
    if interface.get('mask') is not None:
        raise Invalid(f'{what} has a mask, which would be lost: pass an array without one')
    if interface.get('data') is None:
        raise Invalid(f'{what} has no address in its array interface')
    strides = interface.get('strides')
    if strides is not None:
        _check_strides(shape, tuple(strides), size, what)
    address, read_only = interface['data']
    stream = interface.get('stream')
    count = _count(shape, size, what)
    return Buffer(address if count else None, count, name, bool(read_only),
                  None if stream == CUDA_LEGACY_STREAM else stream, owner, on_device)
