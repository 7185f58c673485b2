"""Reads DLPack capsules: where the elements of another library's tensor lie. Owns nothing; calls no library but Python's.

The layouts are those of dlpack.h 1.1. A capsule that is not renamed stays its maker's: it frees the tensor's export when
the capsule goes.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object

from .errors import Invalid

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
READ_ONLY = 1 # a flag
LEGACY_STREAM = 1 # how DLPack says: the default stream of CUDA

# (code, bits) -> name of the element type. Codes: 0 int, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool, 10 and 12 float8.
DTYPES = {
    (0, 8): 'int8', (0, 16): 'int16', (0, 32): 'int32', (0, 64): 'int64',
    (1, 8): 'uint8', (1, 16): 'uint16', (1, 32): 'uint32', (1, 64): 'uint64',
    (2, 16): 'float16', (2, 32): 'float32', (2, 64): 'float64', (4, 16): 'bfloat16',
    (5, 64): 'complex64', (5, 128): 'complex128', (6, 8): 'bool', (10, 8): 'float8_e4m3', (12, 8): 'float8_e5m2'}


class Tensor(Structure):
    """DLTensor"""
    _fields_ = [('data', c_void_p), ('device_type', c_int32), ('device_id', c_int32), ('ndim', c_int32), ('code', c_uint8),
                ('bits', c_uint8), ('lanes', c_uint16), ('shape', POINTER(c_int64)), ('strides', POINTER(c_int64)),
                ('byte_offset', c_uint64)]


class Managed(Structure):
    """DLManagedTensor"""
    _fields_ = [('tensor', Tensor), ('context', c_void_p), ('deleter', c_void_p)]


class Versioned(Structure):
    """DLManagedTensorVersioned"""
    _fields_ = [('major', c_uint32), ('minor', c_uint32), ('context', c_void_p), ('deleter', c_void_p), ('flags', c_uint64),
                ('tensor', Tensor)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c_void_p, [py_object, c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [py_object, c_char_p]


def capsule_of(exporter: object, stream: int | None) -> object:
    """The capsule of an object that has __dlpack__(); on a GPU it may be used in @stream (None: the default one)."""
    export = getattr(exporter, '__dlpack__')
    device, _ = getattr(exporter, '__dlpack_device__')()
    options = {'stream': stream or LEGACY_STREAM} if device == CUDA else {}
    try:
        return export(max_version=(1, 1), **options)
    except TypeError: # made before DLPack 1.0
        return export(**options)


def read(capsule: object) -> tuple[Tensor, bool]:
    """The tensor in a capsule, valid as long as that; and whether it must not be written to."""
    if _is_valid(capsule, b'dltensor_versioned'):
        versioned = Versioned.from_address(_pointer_of(capsule, b'dltensor_versioned'))
        if versioned.major != 1:
            raise Invalid(f'a tensor was passed by DLPack {versioned.major}.{versioned.minor}, and version 1 is understood')
        return versioned.tensor, bool(versioned.flags & READ_ONLY)
    if _is_valid(capsule, b'dltensor'):
        return Managed.from_address(_pointer_of(capsule, b'dltensor')).tensor, False
    raise Invalid('__dlpack__() returned something that is not a DLPack capsule')
