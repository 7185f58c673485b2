#!/usr/bin/env python3
"""test_package_layout.py - the package's mirror of the C interface beside what the compiler says ($LAYOUTS): each struct, each
member, each number; and that both libraries have each function that the package declares."""

import ctypes
import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from ddprun import interface, libraries


class Layout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        out = subprocess.run([os.environ['LAYOUTS']], stdout=subprocess.PIPE, text=True, check=True).stdout
        cls.rows = [line.split() for line in out.splitlines()]

    def numbers(self, kind):
        return {row[1]: (int(row[2]), int(row[3])) for row in self.rows if row[0] == kind}

    def test_structs(self):
        ours = {}
        for name, struct in interface.STRUCTS.items():
            ours[name] = [ctypes.sizeof(struct)]
            for member, *_ in struct._fields_:
                field = getattr(struct, member)
                ours[f'{name}.{member}'] = [field.offset, field.size]
        theirs = {row[0]: [int(number) for number in row[1:]] for row in self.rows if row[0].startswith('ddp_')}
        self.assertEqual(ours, theirs)

    def test_numbers(self):
        self.assertEqual(self.numbers('dtype'), interface.DTYPES)
        self.assertEqual({name: number for name, (number, _) in self.numbers('status').items()}, interface.STATUS_NUMBERS)
        self.assertEqual({name: number for name, (number, _) in self.numbers('op').items()}, interface.REDUCE_OPS)
        self.assertEqual({name: number for name, (number, _) in self.numbers('algorithm').items()}, interface.ALGORITHMS)
        for name, (number, _) in self.numbers('kind').items():
            self.assertEqual(getattr(interface, name), number)

    def test_functions(self):
        for library, declared in ((libraries.comm(), {**interface.COMM_CALLS, **interface.COMM_OTHERS}),
                                  (libraries.store(), {**interface.STORE_CALLS, **interface.STORE_OTHERS})):
            for name in declared:
                self.assertIsNotNone(getattr(library, name).argtypes, name)


if __name__ == '__main__':
    unittest.main()
