"""perf_torch.py - PyTorch's TCPStore client and server, for ddp-perf, which carries this text inside.

    server                                      PyTorch's libuv server, until it is killed
    clients COUNT ROUNDS MS NAME=PORT:PID ...   load each server by turns

clients prints a line for each run: NAME OPERATION REQUESTS ELAPSED_US CPU_US, of all clients
together; the processor time is that of all threads of the server's process. Round 0 is not printed.
Exit status 3: this Python has no PyTorch.
"""

import os
import signal
import struct
import sys
import time

KEYS, MANY, VALUE = 64, 16, b'v' * 64

try:
    from torch.distributed import TCPStore
except ImportError:
    sys.exit(3)


def serve():
    store = TCPStore('127.0.0.1', 0, is_master=True, use_libuv=True, wait_for_workers=False)
    print(f'listening on 127.0.0.1:{store.port}', flush=True)
    while True:
        signal.pause()


def operations(store, number):
    """Name -> a function of the request's number; every client has keys of its own."""
    keys = [f'bench/{number}/{i:04}' for i in range(KEYS)]
    value = VALUE.decode()
    for key in keys:
        store.set(key, value)
        store.add(key + '/count', 0)
    return {
        'set': lambda i: store.set(keys[i % KEYS], value),
        'get': lambda i: store.get(keys[i % KEYS]),
        'add': lambda i: store.add(keys[i % KEYS] + '/count', 1),
        'check': lambda i: store.check(keys[i % KEYS:i % KEYS + 1]),
        'multi_get': lambda i: store.multi_get(keys[i * MANY % KEYS:i * MANY % KEYS + MANY]),
        'compare_set': lambda i: store.compare_set(keys[i % KEYS], value, value),
    }


OPERATIONS = ('set', 'get', 'add', 'check', 'multi_get', 'compare_set')


def play(side, name, seconds):
    """Requests one after the other for that long, and until the server has taken them all, since
    nobody answers a set: how many."""
    request = side[name]
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        request(count)
        count += 1
    side['check'](0)
    return count + 1


def client(number, ports, seconds, commands, answers):
    """A process: a command is the index of a server and of an operation, two bytes."""
    sides = [operations(TCPStore('127.0.0.1', port, is_master=False, wait_for_workers=False), number)
             for port in ports]
    os.write(answers, struct.pack('q', 0))
    while command := os.read(commands, 2):
        count = play(sides[command[0]], OPERATIONS[command[1]], seconds)
        os.write(answers, struct.pack('q', count))


def start(number, ports, seconds, crew):
    """(pipe to it, pipe from it)"""
    commands, answers = os.pipe(), os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            for ends in crew + [(commands[1], answers[0])]:  # their end must be seen
                os.close(ends[0])
                os.close(ends[1])
            client(number, ports, seconds, commands[0], answers[1])
            status = 0
        finally:
            os._exit(status)
    os.close(commands[0])
    os.close(answers[1])
    return commands[1], answers[0]


def collect(crew):
    """The sum of their answers; one that has died gives none."""
    total = 0
    for _, answers in crew:
        answer = os.read(answers, 8)
        if len(answer) != 8:
            sys.exit('a client has failed')
        total += struct.unpack('q', answer)[0]
    return total


def cpu_us(pid):
    total = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/schedstat') as file:
            total += int(file.read().split()[0])
    return total / 1000


def load(count, rounds, milliseconds, *servers):
    names = [server.partition('=')[0] for server in servers]
    places = [tuple(map(int, server.partition('=')[2].split(':'))) for server in servers]
    crew = []
    for number in range(int(count)):
        crew.append(start(number, [port for port, _ in places], int(milliseconds) / 1000, crew))
    collect(crew)
    for round_number in range(int(rounds) + 1):
        for op, op_name in enumerate(OPERATIONS):
            for side, (_, pid) in enumerate(places):
                cpu, begin = cpu_us(pid), time.perf_counter()
                for commands, _ in crew:
                    os.write(commands, bytes((side, op)))
                requests = collect(crew)
                elapsed, cpu = time.perf_counter() - begin, cpu_us(pid) - cpu
                if round_number > 0:
                    print(names[side], op_name, requests, round(elapsed * 1e6), round(cpu),
                          flush=True)
    for commands, _ in crew:
        os.close(commands)


if __name__ == '__main__':
    {'server': serve, 'clients': load}[sys.argv[1]](*sys.argv[2:])
