/*
 * dialect_tcpstore.h - constants of PyTorch's TCPStore protocol, for the dialect and its tests.
 *
 * A connection begins with VALIDATE. A request is a type byte and its fields, without a total
 * length; integers are little-endian; strings are a u64 length and bytes. Replies have no header:
 * the client knows the form of each reply from its request, so an error can only be reported by
 * closing the connection. Replies are sent in the order of the requests, except those to WAIT and
 * BARRIER, which can take any time; the only request that a client sends meanwhile is CANCEL_WAIT.
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

/* The longest request: a MULTI_SET of many values is longer than one value. */
#define DDPI_TCPSTORE_REQUEST_MAX (64u * 1024 * 1024)

#endif
