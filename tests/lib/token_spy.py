#!/usr/bin/env python3
"""token_spy.py FILE - looks for the token in FILE in every process of this user, as any program of the user may.

It reads all memory and all descriptors that it may, and prints as JSON, for each process, where the token is. A
process that lets nothing be read has an empty list. The spy itself has the token, so it must find itself.
"""

import json
import os
import re
import sys

REGION_MAX = 256 << 20  # the shadow of a sanitizer is larger, and has no token
READABLE_MAPPING = re.compile(r'([0-9a-f]+)-([0-9a-f]+) r')
FILE_READ = 4096


def may_read(pid):
    """Its memory."""
    try:
        with open(f'/proc/{pid}/mem', 'rb'):
            return True
    except PermissionError:
        return False


def forms_of(token):
    return token.encode(), bytes.fromhex(token)


def has(data, forms):
    return any(form in data for form in forms)


def in_memory(pid, forms):
    try:
        with open(f'/proc/{pid}/maps', encoding='utf-8') as maps:
            regions = [[int(at, 16) for at in found.groups()] for found in map(READABLE_MAPPING.match, maps) if found]
        with open(f'/proc/{pid}/mem', 'rb', buffering=0) as memory:
            return any(in_region(memory, begin, end, forms) for begin, end in regions if end - begin <= REGION_MAX)
    except OSError:
        return False


def in_region(memory, begin, end, forms):
    try:
        return has(os.pread(memory.fileno(), end - begin, begin), forms)
    except OSError:  # of the kernel's own, such as [vvar]
        return False


def in_descriptors(pid, forms):
    try:
        numbers = os.listdir(f'/proc/{pid}/fd')
    except OSError:
        return []
    return [number for number in numbers if in_descriptor(f'/proc/{pid}/fd/{number}', forms)]


def in_descriptor(path, forms):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return has(os.pread(fd, FILE_READ, 0), forms)
    except OSError:  # it has no beginning: a pipe
        return False
    finally:
        os.close(fd)


def places(pid, token):
    """Where this process can read @token in the process @pid."""
    forms = forms_of(token)
    found = [f'descriptor {number}' for number in in_descriptors(pid, forms)]
    return found + ['memory'] * in_memory(pid, forms)


def owner(pid):
    try:
        with open(f'/proc/{pid}/status', encoding='utf-8') as status:
            return next(int(line.split()[1]) for line in status if line.startswith('Uid:'))
    except OSError:
        return None


def spy(file):
    with open(file, encoding='utf-8') as text:
        token = text.read().strip()
    mine = [int(pid) for pid in os.listdir('/proc') if pid.isdigit() and owner(pid) == os.getuid()]
    return {pid: places(pid, token) for pid in mine}


if __name__ == '__main__':
    print('spy', os.getpid(), json.dumps(spy(sys.argv[1])), flush=True)
