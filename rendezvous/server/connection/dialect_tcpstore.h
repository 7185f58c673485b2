/*
 * dialect_tcpstore.h - constants of PyTorch's TCPStore protocol, for the dialect and its tests.
 *
 * A connection begins with VALIDATE, and nothing else may begin one. A request is a type byte and
 * fields without any length around them; all integers are little-endian; strings are a u64 length
 * and bytes. Replies have no header: a client knows what comes from what it has asked, so an error
 * can only be told by closing. They leave in the order of the requests, but for WAIT and BARRIER,
 * whose replies may take any time; the one request that a client sends meanwhile is CANCEL_WAIT.
 */
#ifndef DDPI_DIALECT_TCPSTORE_H
#define DDPI_DIALECT_TCPSTORE_H

enum ddpi_tcpstore_type {
    DDPI_TCPSTORE_VALIDATE = 0,
    DDPI_TCPSTORE_SET,
    DDPI_TCPSTORE_COMPARE_SET,
    DDPI_TCPSTORE_GET,
    DDPI_TCPSTORE_ADD,
    DDPI_TCPSTORE_CHECK,
    DDPI_TCPSTORE_WAIT,
    DDPI_TCPSTORE_GETNUMKEYS,
    DDPI_TCPSTORE_DELETE_KEY,
    DDPI_TCPSTORE_APPEND,
    DDPI_TCPSTORE_MULTI_GET,
    DDPI_TCPSTORE_MULTI_SET,
    DDPI_TCPSTORE_CANCEL_WAIT,
    DDPI_TCPSTORE_PING,
    DDPI_TCPSTORE_QUEUE_PUSH,
    DDPI_TCPSTORE_QUEUE_POP,
    DDPI_TCPSTORE_QUEUE_LEN,
    DDPI_TCPSTORE_LIST_KEYS,
    DDPI_TCPSTORE_BARRIER,
    DDPI_TCPSTORE_TYPES
};

/* VALIDATE: the type and the magic number. */
#define DDPI_TCPSTORE_HELLO      "\x00\xce\xf7\x85\x3c"
#define DDPI_TCPSTORE_HELLO_SIZE 5

/* A whole request: a MULTI_SET of many values is longer than each of them may be. */
#define DDPI_TCPSTORE_REQUEST_MAX (64u * 1024 * 1024)

#endif
