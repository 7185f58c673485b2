/*
 * flight_ask.h - how ddpctl asks the agents of a job for what their workers have recorded: keys of
 * the store, behind the prefix of the job.
 *
 *     dump/ask/ID              set by the asker: a session, and how many records of each worker
 *     dump/answer/ID/RANK      set by the agent of that worker: a copy (flight_file.h)
 *
 * All of them belong to the asker's session, so they vanish with it, however it ends.
 */
#ifndef DDPI_FLIGHT_ASK_H
#define DDPI_FLIGHT_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DDPI_FLIGHT_ASK_PREFIX    "dump/ask/"
#define DDPI_FLIGHT_ANSWER_PREFIX "dump/answer/"

enum {
    DDPI_FLIGHT_ID_CHARS = 16, /* hexadecimal digits in lower case */
    DDPI_FLIGHT_SESSION = 24,
    DDPI_FLIGHT_ASK_SIZE = DDPI_FLIGHT_SESSION + 4
};

struct ddpi_flight_ask {
    char id[DDPI_FLIGHT_ID_CHARS + 1];
    unsigned char session[DDPI_FLIGHT_SESSION];
    uint32_t last;
};

static inline void ddpi_flight_ask_put(const struct ddpi_flight_ask *ask,
                                       unsigned char value[DDPI_FLIGHT_ASK_SIZE])
{
    memcpy(value, ask->session, DDPI_FLIGHT_SESSION);
    for (unsigned i = 0; i < 4; i++)
        value[DDPI_FLIGHT_SESSION + i] = (unsigned char)(ask->last >> (24 - 8 * i));
}

/* False: the key and its value ask for nothing. */
static inline bool ddpi_flight_ask_get(const char *key, const void *value, size_t len,
                                       struct ddpi_flight_ask *ret_ask)
{
    static const char prefix[] = DDPI_FLIGHT_ASK_PREFIX;
    const unsigned char *bytes = value;
    if (strncmp(key, prefix, sizeof prefix - 1) != 0 || len != DDPI_FLIGHT_ASK_SIZE)
        return false;
    const char *id = key + sizeof prefix - 1;
    if (strlen(id) != DDPI_FLIGHT_ID_CHARS ||
        strspn(id, "0123456789abcdef") != DDPI_FLIGHT_ID_CHARS)
        return false;
    memcpy(ret_ask->id, id, sizeof ret_ask->id);
    memcpy(ret_ask->session, bytes, DDPI_FLIGHT_SESSION);
    ret_ask->last = 0;
    for (unsigned i = 0; i < 4; i++)
        ret_ask->last = ret_ask->last << 8 | bytes[DDPI_FLIGHT_SESSION + i];
    return true;
}

#endif
