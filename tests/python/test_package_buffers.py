#!/usr/bin/env python3
"""test_package_buffers.py - which objects have elements for the package, of which type, and which are refused, in which words.

Without NumPy or PyTorch: what they offer is made here by hand. tests/interop has the real ones.
"""

import array
import ctypes
import gc
import mmap
import sys
import unittest

sys.dont_write_bytecode = True
import ddprun
from ddprun import dlpack
from ddprun.buffers import buffer, written

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
make_capsule = ctypes.pythonapi.PyCapsule_New
make_capsule.restype, make_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class DlpackTensor:
    """Exports @numbers (an array of ctypes) as DLPack does; @strides in elements."""

    def __init__(self, numbers, code, bits, shape, strides=None, versioned=True, flags=0, device=dlpack.CPU, offset=0):
        self.numbers = numbers
        self.shape, self.device, self.versioned = (ctypes.c_int64 * len(shape))(*shape), device, versioned
        self.strides = (ctypes.c_int64 * len(strides))(*strides) if strides else None
        tensor = dlpack.Tensor(
            data=ctypes.addressof(numbers), device_type=device, ndim=len(shape), code=code, bits=bits, lanes=1,
            shape=self.shape, strides=self.strides, byte_offset=offset)
        self.managed = (dlpack.Versioned(major=1, minor=1, flags=flags, tensor=tensor) if versioned
                        else dlpack.Managed(tensor=tensor))

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **options):
        if not self.versioned and 'max_version' in options:
            raise TypeError('an old one')
        name = b'dltensor_versioned' if self.versioned else b'dltensor'
        return make_capsule(ctypes.addressof(self.managed), name, None)


class Interface:
    def __init__(self, name, **interface):
        setattr(self, name, interface)


class Case(unittest.TestCase):
    def assert_refused(self, text, *arguments, find=buffer, **options):
        with self.assertRaises(ddprun.Invalid) as caught:
            find(*arguments, **options)
        self.assertIn(text, str(caught.exception))
        self.assertIsInstance(caught.exception, ValueError)


class Memory(Case):
    def test_types_of_the_buffer_protocol(self):
        for letters, dtype in (('b', 'int8'), ('B', 'uint8'), ('h', 'int16'), ('H', 'uint16'), ('i', 'int32'), ('I', 'uint32'),
                               ('l', 'int64'), ('L', 'uint64'), ('q', 'int64'), ('Q', 'uint64'), ('f', 'float32'),
                               ('d', 'float64')):
            found = buffer(array.array(letters, [1, 2, 3]))
            self.assertEqual((found.dtype, found.count, found.read_only), (dtype, 3, False), letters)
        self.assertEqual(buffer((ctypes.c_bool * 2)()).dtype, 'bool')
        self.assertEqual(buffer((ctypes.c_int64 * 2)()).dtype, 'int64')
        self.assertEqual(buffer(bytearray(5)).dtype, 'uint8')
        self.assertEqual(buffer(memoryview(bytearray(4)).cast('c')).dtype, 'uint8')

    def test_addresses(self):
        numbers = (ctypes.c_float * 6)()
        self.assertEqual(buffer(numbers).address, ctypes.addressof(numbers))
        self.assertEqual(buffer(memoryview(numbers).cast('B').cast('f')[2:]).address, ctypes.addressof(numbers) + 8)
        constant = b'some bytes'
        self.assertEqual(ctypes.string_at(buffer(constant).address, len(constant)), constant)
        self.assertIsNone(buffer(b'').address)
        self.assertEqual(written(bytearray()).count, 0)

    def test_a_buffer_is_held(self):
        data = bytearray(8)
        found = written(data)
        with self.assertRaises(BufferError):
            data.append(1)
        del found
        gc.collect()
        data.append(1)
        constant = buffer(bytes(3))
        mapped = mmap.mmap(-1, 4096)
        view = buffer(memoryview(mapped).toreadonly())
        with self.assertRaises(BufferError):
            mapped.close()
        del view, constant
        gc.collect()
        mapped.close()

    def test_other_names_of_types(self):
        halves = array.array('H', [0x3f80] * 4)
        self.assertEqual(buffer(halves, dtype='bfloat16').dtype, 'bfloat16')
        self.assertEqual(buffer(bytearray(12), dtype='float32').count, 3)
        self.assert_refused('13 elements of uint8 are not a whole number of float32', bytearray(13), dtype='float32')
        self.assert_refused("no element type 'float23'; there are float32, ", bytearray(3), dtype='float23')

    def test_what_is_refused(self):
        self.assert_refused('read-only', b'constant', find=written)
        self.assert_refused('is a list, which has neither', [1, 2])
        self.assert_refused('not contiguous (shape (5,), strides (2,))', memoryview(bytearray(10))[::2])
        self.assert_refused('elements of the format', array.array('u', 'text'))
        swapped = (ctypes.c_int32.__ctype_be__ * 2)()
        self.assert_refused("format '>", swapped)


class Dlpack(Case):
    def test_types_and_shapes(self):
        numbers = (ctypes.c_float * 12)(*range(12))
        for versioned in (True, False):
            tensor = DlpackTensor(numbers, 2, 32, (3, 4), (4, 1), versioned)
            found = written(tensor)
            self.assertEqual((found.address, found.count, found.dtype), (ctypes.addressof(numbers), 12, 'float32'))
        self.assertEqual(buffer(DlpackTensor(numbers, 2, 32, (3,), None, offset=8)).address, ctypes.addressof(numbers) + 8)
        self.assertEqual(buffer(DlpackTensor(numbers, 4, 16, ())).dtype, 'bfloat16')
        self.assertEqual(buffer(DlpackTensor(numbers, 4, 16, ())).count, 1)
        self.assertEqual(buffer(DlpackTensor(numbers, 2, 32, (1, 4), (77, 1))).count, 4)
        self.assertIsNone(buffer(DlpackTensor(numbers, 2, 32, (0, 4), (1, 7))).address)

    def test_refused_tensors(self):
        numbers = (ctypes.c_float * 12)()
        self.assert_refused('not contiguous (shape (4, 3), strides (4, 16))', DlpackTensor(numbers, 2, 32, (4, 3), (1, 4)))
        self.assert_refused('no element type', DlpackTensor(numbers, 2, 128, (1,)))
        self.assert_refused('device of kind 7', DlpackTensor(numbers, 2, 32, (1,), device=7))
        constant = DlpackTensor(numbers, 2, 32, (1,), flags=dlpack.READ_ONLY)
        self.assertTrue(buffer(constant).read_only)
        self.assert_refused('no memory has', DlpackTensor(numbers, 2, 32, (-1,), None))
        self.assert_refused('read-only', constant, find=written)


class Interfaces(Case):
    def test_both(self):
        for name in ('__cuda_array_interface__', '__array_interface__'):
            found = written(Interface(name, typestr='<c8', shape=(2, 3), data=(4096, False), version=3, stream=77))
            self.assertEqual((found.address, found.count, found.dtype, found.stream), (4096, 6, 'complex64', 77))
        legacy = buffer(Interface('__cuda_array_interface__', typestr='|b1', shape=(5,), data=(1, True), stream=1))
        self.assertEqual((legacy.dtype, legacy.stream, legacy.read_only), ('bool', None, True))

    def test_refused_arrays(self):
        def array_of(**interface):
            return Interface('__array_interface__', **{'typestr': '<f4', 'shape': (2, 2), 'data': (4096, False), **interface})
        self.assert_refused("type '>f4'", array_of(typestr='>f4'))
        self.assert_refused("type '<V2'", array_of(typestr='<V2'))
        self.assert_refused('not contiguous', array_of(strides=(4, 8)))
        self.assert_refused('mask', array_of(mask=[True]))
        self.assert_refused('no address', array_of(data=None))
        for shape in ((2**70,), (2**40, 2**40), (-1,), (-2, -2), (2**61,)):
            self.assert_refused('no memory has', array_of(shape=shape))


if __name__ == '__main__':
    unittest.main()
