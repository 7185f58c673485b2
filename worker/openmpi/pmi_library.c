/*
 * pmi_library.c - the library of the process manager for programs of Open MPI 4, which loads it by
 * the path that FLUX_PMI_LIBRARY_PATH names. Passes each call on to the agent (daemon/pmi), as a
 * line of PMI-1 over the socket that the worker inherits, and waits for the line that answers it.
 *
 * Names, results and meaning of the functions are those of PMI-1's API. Keeps nothing: the agent
 * knows the rest, and the environment has ranks and socket. One thread at a time.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PMI_SUCCESS = 0, PMI_FAIL = -1, PMI_ERR_INVALID_ARG = 3, PMI_ERR_INVALID_LENGTH = 8 };
enum { LINE_SIZE = 2048 }; /* longer than a line with the longest key and value */

/* Open MPI's values have blanks, which end a word of a line. */
#define BLANK_SENT "\xa0"

#define PMI_FUNCTION(name, ...)                                   \
    __attribute__((visibility("default"))) int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

/* ---- environment ------------------------------------------------------------------------------
 */

/* A decimal number with nothing around it. This library has no part of ours in it, as it may be
 * loaded into any program: so no parse.h. */
static bool read_number(const char *text, int *ret)
{
    bool negative = *text == '-';
    const char *digits = text + negative;
    int64_t number = 0;
    size_t len = strspn(digits, "0123456789");
    if (len == 0 || len > 10 || digits[len] != '\0')
        return false;
    for (size_t i = 0; i < len; i++)
        number = number * 10 + (digits[i] - '0');
    number = negative ? -number : number;
    if (number < INT_MIN || number > INT_MAX)
        return false;
    *ret = (int)number;
    return true;
}

/* The number in variable @name; -1: there is none. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    int number;
    return text != NULL && read_number(text, &number) && number >= 0 ? number : -1;
}

static int get_number(const char *name, int *ret)
{
    int number = number_of(name);
    if (ret == NULL)
        return PMI_ERR_INVALID_ARG;
    if (number < 0)
        return PMI_FAIL;
    *ret = number;
    return PMI_SUCCESS;
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static bool send_line(int fd, const char *line, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, line, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        line += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* Byte by byte, as nothing may be kept; the agent sends no second line before it is asked. */
static bool read_line(int fd, char line[LINE_SIZE])
{
    for (size_t len = 0; len < LINE_SIZE;) {
        ssize_t got = recv(fd, line + len, 1, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        if (line[len] == '\n') {
            line[len] = '\0';
            return true;
        }
        len++;
    }
    return false;
}

/* The value of word @name, which ends at the next blank; NULL: @line has no such word. */
static char *find_word(char *line, const char *name, size_t *ret_len)
{
    size_t name_len = strlen(name);
    for (char *at = line; *at != '\0'; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        if (len > name_len && at[name_len] == '=' && strncmp(at, name, name_len) == 0) {
            *ret_len = len - name_len - 1;
            return at + name_len + 1;
        }
        at += len;
    }
    return NULL;
}

static bool get_word(char *line, const char *name, char *value, size_t size)
{
    size_t len;
    const char *found = find_word(line, name, &len);
    if (found == NULL || len >= size)
        return false;
    memcpy(value, found, len);
    value[len] = '\0';
    return true;
}

static bool get_word_number(char *line, const char *name, int *ret)
{
    char text[16];
    return get_word(line, name, text, sizeof text) && read_number(text, ret);
}

/* Ask the agent; the answer is to have the command @answer, and no rc other than 0. */
__attribute__((format(printf, 3, 4))) static bool ask(char line[LINE_SIZE], const char *answer,
                                                      const char *format, ...)
{
    char cmd[32];
    int rc = 0, fd = number_of("PMI_FD");
    va_list words;
    va_start(words, format);
    int len = vsnprintf(line, LINE_SIZE, format, words);
    va_end(words);
    if (fd < 0 || len < 0 || len >= LINE_SIZE || !send_line(fd, line, (size_t)len) ||
        !read_line(fd, line))
        return false;
    if (!get_word(line, "cmd", cmd, sizeof cmd) || strcmp(cmd, answer) != 0)
        return false;
    return !get_word_number(line, "rc", &rc) || rc == 0;
}

static int get_most(const char *name, int *ret)
{
    char line[LINE_SIZE];
    if (ret == NULL)
        return PMI_ERR_INVALID_ARG;
    return ask(line, "maxes", "cmd=get_maxes\n") && get_word_number(line, name, ret) ? PMI_SUCCESS
                                                                                     : PMI_FAIL;
}

/* A line ends at a newline and a word at a blank. */
static bool is_word(const char *text)
{
    return text != NULL && *text != '\0' && text[strcspn(text, " \n")] == '\0';
}

static void replace(char *text, char from, char to)
{
    for (; *text != '\0'; text++)
        if (*text == from)
            *text = to;
}

/* ---- the functions ----------------------------------------------------------------------------
 */

PMI_FUNCTION(PMI_Init, int *ret_spawned)
{
    char line[LINE_SIZE];
    if (ret_spawned == NULL)
        return PMI_ERR_INVALID_ARG;
    if (!ask(line, "response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n"))
        return PMI_FAIL;
    *ret_spawned = 0;
    return PMI_SUCCESS;
}

/* Open MPI loads this library to call PMI_Init(), and unloads it after PMI_Finalize(). */
PMI_FUNCTION(PMI_Initialized, int *ret)
{
    if (ret == NULL)
        return PMI_ERR_INVALID_ARG;
    *ret = 1;
    return PMI_SUCCESS;
}

PMI_FUNCTION(PMI_Finalize, void)
{
    char line[LINE_SIZE];
    return ask(line, "finalize_ack", "cmd=finalize\n") ? PMI_SUCCESS : PMI_FAIL;
}

PMI_FUNCTION(PMI_Get_size, int *ret)
{
    return get_number("PMI_SIZE", ret);
}

PMI_FUNCTION(PMI_Get_rank, int *ret)
{
    return get_number("PMI_RANK", ret);
}

PMI_FUNCTION(PMI_Get_universe_size, int *ret)
{
    return get_number("PMI_SIZE", ret);
}

PMI_FUNCTION(PMI_Get_appnum, int *ret)
{
    if (ret == NULL)
        return PMI_ERR_INVALID_ARG;
    *ret = 0;
    return PMI_SUCCESS;
}

/* The ranks of this machine. */
PMI_FUNCTION(PMI_Get_clique_size, int *ret)
{
    return get_number("MPI_LOCALNRANKS", ret);
}

PMI_FUNCTION(PMI_Get_clique_ranks, int *ret_ranks, int length)
{
    int rank = number_of("PMI_RANK"), local = number_of("MPI_LOCALRANKID");
    int count = number_of("MPI_LOCALNRANKS");
    if (ret_ranks == NULL)
        return PMI_ERR_INVALID_ARG;
    if (rank < 0 || local < 0 || rank < local || count < 0)
        return PMI_FAIL;
    if (length < count)
        return PMI_ERR_INVALID_LENGTH;
    for (int i = 0; i < count; i++)
        ret_ranks[i] = rank - local + i;
    return PMI_SUCCESS;
}

PMI_FUNCTION(PMI_Barrier, void)
{
    char line[LINE_SIZE];
    return ask(line, "barrier_out", "cmd=barrier_in\n") ? PMI_SUCCESS : PMI_FAIL;
}

/* The agent does not answer, but ends the job; the caller ends its process. */
PMI_FUNCTION(PMI_Abort, int exit_code, const char *message)
{
    char line[64];
    (void)message; /* the program has printed it */
    int len = snprintf(line, sizeof line, "cmd=abort exitcode=%d\n", exit_code);
    return send_line(number_of("PMI_FD"), line, (size_t)len) ? PMI_SUCCESS : PMI_FAIL;
}

PMI_FUNCTION(PMI_KVS_Get_my_name, char *ret_name, int length)
{
    char line[LINE_SIZE];
    if (ret_name == NULL || length <= 0)
        return PMI_ERR_INVALID_ARG;
    return ask(line, "my_kvsname", "cmd=get_my_kvsname\n") &&
                   get_word(line, "kvsname", ret_name, (size_t)length)
               ? PMI_SUCCESS
               : PMI_FAIL;
}

PMI_FUNCTION(PMI_KVS_Get_name_length_max, int *ret)
{
    return get_most("kvsname_max", ret);
}

PMI_FUNCTION(PMI_KVS_Get_key_length_max, int *ret)
{
    return get_most("keylen_max", ret);
}

PMI_FUNCTION(PMI_KVS_Get_value_length_max, int *ret)
{
    return get_most("vallen_max", ret);
}

PMI_FUNCTION(PMI_KVS_Put, const char *kvs, const char *key, const char *value)
{
    char line[LINE_SIZE], sent[LINE_SIZE];
    if (!is_word(kvs) || !is_word(key) || value == NULL || *value == '\0' ||
        strlen(value) >= sizeof sent || value[strcspn(value, "\n" BLANK_SENT)] != '\0')
        return PMI_ERR_INVALID_ARG;
    memcpy(sent, value, strlen(value) + 1);
    replace(sent, ' ', BLANK_SENT[0]);
    return ask(line, "put_result", "cmd=put kvsname=%s key=%s value=%s\n", kvs, key, sent)
               ? PMI_SUCCESS
               : PMI_FAIL;
}

/* Keys travel with the next barrier. */
PMI_FUNCTION(PMI_KVS_Commit, const char *kvs)
{
    return kvs != NULL ? PMI_SUCCESS : PMI_ERR_INVALID_ARG;
}

PMI_FUNCTION(PMI_KVS_Get, const char *kvs, const char *key, char *ret_value, int length)
{
    char line[LINE_SIZE];
    if (!is_word(kvs) || !is_word(key) || ret_value == NULL || length <= 0)
        return PMI_ERR_INVALID_ARG;
    if (!ask(line, "get_result", "cmd=get kvsname=%s key=%s\n", kvs, key) ||
        !get_word(line, "value", ret_value, (size_t)length))
        return PMI_FAIL;
    replace(ret_value, BLANK_SENT[0], ' ');
    return PMI_SUCCESS;
}
