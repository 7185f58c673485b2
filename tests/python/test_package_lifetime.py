#!/usr/bin/env python3
"""test_package_lifetime.py - closing a handle: in a signal handler, after one that raised, and during another thread's call."""

import array
import contextlib
import signal
import sys
import threading
import unittest

sys.dont_write_bytecode = True
import ddprun
from ddprun.lifetime import Handle

ADDRESS = 7


class Raised(Exception):
    """By a signal handler, as KeyboardInterrupt is."""


class Recorded(unittest.TestCase):
    """What a handle does with its address, in which order."""

    def setUp(self):
        self.handle, self.done = Handle('thing', ADDRESS), []

    def close(self):
        self.handle.close(lambda address: self.done.append(f'interrupt {address}'), lambda address: self.done.append(f'free {address}'))
        self.done.append('closed')

    def test_a_call_that_closes(self):
        """As a signal handler does between two lines of a call."""
        def call(address):
            self.close()
            self.close()
            with self.assertRaisesRegex(ddprun.Invalid, 'this thing is closed'):
                self.handle.use(print)
            self.done.append(f'use {address}')
        self.handle.use(call)
        self.close()
        self.assertEqual(self.done, ['interrupt 7', 'closed', 'closed', 'use 7', 'free 7', 'closed'])

    def test_a_handler_that_raises_while_close_waits(self):
        entered, ended = threading.Event(), threading.Event()

        def work(_):
            entered.set()
            ended.wait()
        thread = threading.Thread(target=self.handle.use, args=(work,))
        thread.start()
        entered.wait()

        def interrupt(_):
            raise Raised
        with self.assertRaises(Raised):
            self.handle.close(interrupt, self.done.append)
        self.handle.close(lambda _: ended.set(), self.done.append)
        thread.join()
        self.assertEqual(self.done, [ADDRESS])

    def test_a_handler_that_raises_in_a_call(self):
        """Python runs signal handlers where a function begins, and after calls: each of these places raises once."""
        for place in range(1000):
            handle, freed, left = Handle('thing', ADDRESS), [], [place]

            def profile(frame, event, _, left=left):
                if event in ('call', 'c_return') and frame.f_code.co_filename == sys.modules[Handle.__module__].__file__:
                    left[0] -= 1
                    if left[0] < 0:
                        raise Raised
            sys.setprofile(profile)
            try:
                handle.use(abs)
            except Raised:
                pass
            finally:
                sys.setprofile(None)
            closing = threading.Thread(target=handle.close, args=(abs, freed.append))
            closing.start()
            closing.join()
            self.assertEqual(freed, [ADDRESS])
            if left[0] >= 0: # the call had fewer places
                break
        self.assertGreater(place, 3)


class Communicators(unittest.TestCase):
    def test_a_signal_handler_that_closes(self):
        comm, other = ddprun.Communicator.local(2)
        self.addCleanup(other.close)
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, lambda *_: comm.close()))

        def signal_and_send():
            signal.raise_signal(signal.SIGUSR1) # its handler runs when the main thread is back from C, or before it goes there
            with contextlib.suppress(ddprun.Error):
                other.send(array.array('f', [1]), 0)
        thread = threading.Thread(target=signal_and_send)
        with contextlib.suppress(ddprun.Aborted, ddprun.Invalid):
            thread.start()
            comm.recv(array.array('f', [0]), 1)
        thread.join()
        with self.assertRaisesRegex(ddprun.Invalid, 'this communicator is closed'):
            comm.check()


if __name__ == '__main__':
    unittest.main()
