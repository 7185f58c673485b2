/*
 * pmi_library.c - fuzzes what the library for Open MPI's programs makes of the agent's answers: the
 * input is all that the agent ever says. Texts that it returns end within their buffers, and a
 * failed call has changed nothing.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int PMI_Init(int *ret_spawned);
int PMI_Barrier(void);
int PMI_KVS_Get_my_name(char *ret_name, int length);
int PMI_KVS_Get_value_length_max(int *ret);
int PMI_KVS_Get(const char *kvs, const char *key, char *ret_value, int length);

enum { MOST = 16384, SIZE = sizeof "untouched" };

static void get_text(int (*get)(char *text, int length))
{
    char *text = (char *)fuzz_copy("untouched", sizeof "untouched");
    int status = get(text, SIZE);
    HOLDS(memchr(text, 0, SIZE) != NULL);
    HOLDS(status == 0 || strcmp(text, "untouched") == 0);
    HOLDS(status != 0 || strchr(text, '\n') == NULL);
    free(text);
}

static int get_value(char *text, int length)
{
    return PMI_KVS_Get("kvs", "key", text, length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2], number = 4711;
    char fd[16];
    size_t len = size < MOST ? size : MOST;
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    HOLDS(len == 0 || write(ends[0], data, len) == (ssize_t)len);
    shutdown(ends[0], SHUT_WR);
    snprintf(fd, sizeof fd, "%d", ends[1]);
    setenv("PMI_FD", fd, 1);
    HOLDS(PMI_Init(&number) == 0 || number == 4711);
    number = 4711;
    HOLDS(PMI_KVS_Get_value_length_max(&number) == 0 || number == 4711);
    get_text(PMI_KVS_Get_my_name);
    (void)PMI_Barrier();
    get_text(get_value);
    close(ends[0]);
    close(ends[1]);
    return 0;
}
