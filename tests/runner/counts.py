"""counts.py - what a test's output says: how many cases passed, failed and were skipped, why, and which lines name a failure.

Check programs and Python's unittest count by their cases, other tests and lint checks as one each.
"""

import re
from collections import Counter

SKIPPED_CODE = 77

CHECK_SUMMARY = re.compile(r'^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)$', re.MULTILINE)
UNITTEST_SUMMARY = re.compile(r'^Ran (\d+) tests? in [^\n]*\n\n(?:OK|FAILED)(.*)$', re.MULTILINE)
LINT_SUMMARY = re.compile(r'^lint: (\d+) passed, (\d+) failed, (\d+) skipped$', re.MULTILINE)
# Check's lines, unittest's headings and its last words, a sanitizer's sentence, a failed lint check.
FAILURE_LINE = re.compile(r'^(?:\S+:\d+:[FE]:.*|\S+\.[ch]:\d+: .*|(?:FAIL|ERROR): .*|\w*(?:Error|Exception)\b.*|ended: .*|'
                          r'.*(?:ERROR|WARNING): \w+Sanitizer.*|.*: runtime error: .*)$', re.MULTILINE)
CASE_SKIP = re.compile(r'^skipped: [\w, ]+: (.*)$', re.MULTILINE) # of a Check program, which has no word for it
UNITTEST_SKIP = re.compile(r"(?:^|\.\.\. )skipped (['\"])(.*)\1$", re.MULTILINE)
LINES_SHOWN = 6


def count(passed=0, failed=0, skipped=0):
    return Counter(passed=passed, failed=failed, skipped=skipped)


def count_unittest(total, details, good):
    """@details: what stands behind the verdict, "(failures=1, errors=2, skipped=3)" or nothing."""
    by_name = {name.strip(): int(number) for name, number in re.findall(r'([\w ]+)=(\d+)', details)}
    skipped = by_name.get('skipped', 0)
    failed = by_name.get('failures', 0) + by_name.get('errors', 0)
    failed = failed if good else max(failed, 1)
    # Sub-tests fail one by one, but count as one test.
    return count(passed=max(int(total) - failed - skipped, 0), failed=failed, skipped=skipped)


def last(pattern, output):
    """The groups of the last match, as a test may print what another one said; None if there is none."""
    found = pattern.findall(output)
    return found[-1] if found else None


def count_test(code, output):
    """The cases of one test program. @code is None if it was ended."""
    if code == SKIPPED_CODE:
        return count(skipped=1)
    unittest = last(UNITTEST_SUMMARY, output)
    if unittest:
        return count_unittest(*unittest, code == 0)
    summary = last(CHECK_SUMMARY, output)
    if not summary:  # one that says nothing at all has not even begun
        return count(passed=1) if code == 0 and output.strip() else count(failed=1)
    cases, failures, errors = map(int, summary)
    failed = failures + errors
    skipped = min(len(CASE_SKIP.findall(output)), cases - failed)
    # All cases passed and the program failed all the same: a leak at its end, for instance.
    return count(cases - failed - skipped, failed if code == 0 else max(failed, 1), skipped)


def count_lint(code, output):
    summary = LINT_SUMMARY.search(output)
    counted = count(*map(int, summary.groups())) if summary else count()
    if code != 0:
        counted['failed'] = max(counted['failed'], 1)
    return counted if summary or code != 0 else count(failed=1)


def skip_reasons(code, output):
    """Why cases were skipped, as the program says it: a program that skips itself says so in its last line."""
    if code == SKIPPED_CODE:
        return [(output.strip().splitlines() or ['it does not say why'])[-1]]
    return [reason for _, reason in UNITTEST_SKIP.findall(output)] + CASE_SKIP.findall(output)


def failure_lines(output):
    """The last lines of @output that name what failed, or its last ones: warnings and expected errors come before. Of a
    test that was ended also what it was at."""
    lines = (FAILURE_LINE.findall(output) or output.splitlines())[-LINES_SHOWN:]
    before, ended, _ = output.partition('\nended: it ')
    if ended:
        lines = before.splitlines()[-LINES_SHOWN:] + lines
    return [line.strip()[:240] for line in lines]
