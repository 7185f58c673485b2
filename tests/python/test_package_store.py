#!/usr/bin/env python3
"""test_package_store.py - ddprun.Store with a ddprund: what each method does, time limits, threads, closing, fork."""

import os
import sys
import threading
import unittest
from datetime import timedelta
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
import ddprun
from ddprund_run import DdprundCase

SHORT = timedelta(milliseconds=20)


class WithStore(DdprundCase):
    def setUp(self):
        super().setUp()
        self.service = self.serve()
        self.addCleanup(self.stop, self.service)
        self.endpoint = self.service.endpoints[0]
        self.store = ddprun.Store(self.endpoint, timeout=timedelta(seconds=60))
        self.addCleanup(self.store.close)

    def test_keys_and_values(self):
        store = self.store
        store.set('text', 'grün')
        store.set('bytes', b'\0\xff')
        store.set('empty', b'')
        self.assertEqual([store.get(key) for key in ('text', 'bytes', 'empty')], ['grün'.encode(), b'\0\xff', b''])
        self.assertEqual(store.multi_get(['bytes', 'empty']), [b'\0\xff', b''])
        store.multi_set(['a', 'b'], ['1', b'2'])
        self.assertEqual(store.list_keys(), ['a', 'b', 'bytes', 'empty', 'text'])
        self.assertEqual((store.num_keys(), store.list_keys('b')), (5, ['b', 'bytes']))
        self.assertTrue(store.check(['a', 'b']))
        self.assertFalse(store.check(['a', 'nothing']))
        self.assertTrue(store.delete_key('a'))
        self.assertFalse(store.delete_key('a'))
        self.assertEqual((store.add('n', 5), store.add('n', -7), store.get('n')), (5, -2, b'-2'))

    def test_compare_set(self):
        store = self.store
        self.assertEqual(store.compare_set('key', 'expected', 'new'), b'expected')
        self.assertFalse(store.check(['key']))
        self.assertEqual(store.compare_set('key', '', 'first'), b'first')
        self.assertEqual(store.compare_set('key', '', 'second'), b'first')
        self.assertEqual(store.compare_set('key', 'first', 'second'), b'second')
        self.assertEqual(store.get('key'), b'second')

    def test_limits(self):
        self.store.set_timeout(SHORT)
        self.assertEqual(self.store.timeout, SHORT)
        with self.assertRaises(ddprun.Timeout):
            self.store.get('never')
        with self.assertRaises(TimeoutError):
            self.store.wait(['never'], timedelta(0))
        with self.assertRaisesRegex(ddprun.Invalid, 'datetime.timedelta'):
            self.store.wait(['never'], 5)
        with self.assertRaises(ddprun.NotFound):
            self.store.try_get('never')
        with self.assertRaisesRegex(ddprun.Error, 'integer') as caught:
            self.store.set('text', 'x')
            self.store.add('text', 1)
        self.assertEqual(caught.exception.status, 'type')
        with self.assertRaisesRegex(ddprun.Invalid, 'pass a list'):
            self.store.wait('text')

    def test_a_waiting_thread_holds_up_no_other(self):
        got = []
        waiting = threading.Thread(target=lambda: got.append(self.store.get('later')))
        waiting.start()
        self.store.set('later', 'now')
        waiting.join()
        self.assertEqual(got, [b'now'])

    def test_close_ends_calls(self):
        store, ended = ddprun.Store(self.endpoint), []

        def wait():
            try:
                store.get('never')
            except ddprun.Error as error:
                ended.append(error.status)
        waiting = threading.Thread(target=wait)
        waiting.start()
        store.close()
        waiting.join()
        self.assertIn(ended, (['canceled'], ['invalid'])) # if close() came before get()
        store.close()
        with self.assertRaisesRegex(ddprun.Invalid, 'this store is closed'):
            store.get('never')

    def test_a_child_has_to_connect(self):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.store.check(['a'])
            except ddprun.Invalid as error:
                os.write(write, str(error).encode())
            self.store.close()
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with open(read, encoding='utf-8') as pipe:
            self.assertIn('has forked this one', pipe.read())
        self.store.set('still', 'here')

    def test_prefixes_and_context(self):
        with ddprun.Store(self.endpoint, prefix='mine/') as mine:
            mine.set('key', 'x')
            self.assertEqual(mine.list_keys(), ['key'])
        self.assertEqual(self.store.get('mine/key'), b'x')
        with self.assertRaises(ddprun.Invalid):
            mine.set('key', 'x')

    def test_what_ctypes_would_change(self):
        """Numbers that wrap, texts that end at a zero byte; bytes() makes as many zeros of a number."""
        store = self.store
        for call, text in ((lambda: store.set('k', 10), 'a value is a str or bytes, not 10'),
                           (lambda: store.set('k', 1 << 62), 'a value is'), (lambda: store.set('k', None), 'a value is'),
                           (lambda: store.set('k', [1]), 'a value is'), (lambda: store.compare_set('k', 1, b''), 'a value is'),
                           (lambda: store.add('k', 2**64 + 1), 'the amount is'), (lambda: store.add('k', -2**63 - 1), 'the amount'),
                           (lambda: store.set('a\0b', ''), 'a key has no zero bytes'), (lambda: store.set(None, ''), 'a key is'),
                           (lambda: ddprun.Store(self.endpoint + '\0'), 'endpoint has no zero bytes'),
                           (lambda: ddprun.Store(self.endpoint, prefix='a\0'), 'prefix has no'),
                           (lambda: ddprun.Store(self.endpoint, job='a\0'), 'job has no'),
                           (lambda: ddprun.Store(self.endpoint, token_file='a\0'), 'token_file has no'),
                           (lambda: ddprun.Store(self.endpoint, token_fd=2**32), 'token_fd is'),
                           (lambda: ddprun.Store(self.endpoint, epoch=-1), 'epoch is')):
            with self.assertRaises(ddprun.Invalid) as caught:
                call()
            self.assertIn(text, str(caught.exception))
        self.assertFalse(store.check(['k']))
        for value in (b'x', bytearray(b'x'), memoryview(b'x')):
            store.set('k', value)
            self.assertEqual(store.get('k'), b'x')
        self.assertEqual(store.add('n', 2**63 - 1), 2**63 - 1)

    def test_keys_that_are_no_utf8(self):
        self.done(self.endpoint, 'set', '\udcff\udce4', 'x')
        self.assertEqual((self.store.num_keys(), self.store.list_keys()), (1, ['\udcff\udce4']))
        self.assertEqual(self.store.get(self.store.list_keys()[0]), b'x')

    def test_refusals(self):
        with self.assertRaises(ddprun.Error) as caught:
            ddprun.Store('127.0.0.1:1', connect_timeout=SHORT)
        self.assertEqual(caught.exception.status, 'unreachable')
        os.environ.pop('DDPRUN_STORE', None)
        with self.assertRaisesRegex(ddprun.Invalid, 'DDPRUN_STORE is not set'):
            ddprun.Store()
        with self.assertRaisesRegex(ddprun.Invalid, "role is 'king'"):
            ddprun.Store(self.endpoint, role='king')


if __name__ == '__main__':
    unittest.main()
