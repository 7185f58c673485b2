"""sample.py - which of many like cases a test runs: all with DDPRUN_TEST_WHOLE=1, else one in so many."""

import os
import unittest

WHOLE = os.environ.get('DDPRUN_TEST_WHOLE') == '1'

# For what costs as much as many other tests and says little more.
whole_only = unittest.skipUnless(WHOLE, 'it runs only with DDPRUN_TEST_WHOLE=1')


def sample(cases, stride=3, first=0):
    """All of @cases, or one in @stride of them."""
    cases = list(cases)
    return cases if WHOLE else cases[first::stride]
