/*
 * store_actions.c - the actions of "ddpctl store" that use the blocking client. Results go to
 * stdout, raw or as one JSON object. Owns nothing.
 */
#include "buf.h"
#include "ddpctl_store.h"
#include "error.h"
#include "job_json.h"
#include "parse.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024 };

/* ---- output ---- */

static json_t *json_word(const char *word)
{
    return json_bytes(word, strlen(word));
}

static json_t *json_words(char *const *words, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < count; i++)
        if (json_array_append_new(array, json_word(words[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static ddp_status print_words(const struct ddpctl_call *call, char *const *words, size_t count,
                              struct ddp_error *err)
{
    return call->options->json
               ? ddpctl_print_json(json_pack("{s:o}", "keys", json_words(words, count)), err)
               : DDP_OK;
}

/* ---- actions ---- */

ddp_status ddpctl_run_get(struct ddpctl_call *call, struct ddp_error *err)
{
    void *value;
    size_t len;
    uint64_t version;
    ddp_status status = ddp_store_try_get(call->store, call->words[0], call->timeout_ms, &value,
                                          &len, &version, err);
    if (status != DDP_OK)
        return status;
    if (call->options->json)
        status =
            ddpctl_print_json(json_pack("{s:o,s:o,s:I}", "key", json_word(call->words[0]), "value",
                                        json_bytes(value, len), "version", (json_int_t)version),
                              err);
    else
        (void)!fwrite(value, 1, len, stdout); /* errors show when stdout is flushed */
    ddp_store_free(value);
    return status;
}

/* Read standard input to its end. */
static ddp_status read_value(struct ddpi_buf *buf, struct ddp_error *err)
{
    for (;;) {
        size_t room = buf->limit - ddpi_buf_len(buf);
        if (room == 0)
            return ddpi_error_set(err, DDP_E_LIMIT, "standard input has more than %d bytes",
                                  DDP_STORE_VALUE_MAX);
        room = room < CHUNK ? room : CHUNK;
        uint8_t *at = ddpi_buf_reserve(buf, room);
        if (at == NULL)
            return ddpi_error_nomem(err, room);
        ssize_t got = read(STDIN_FILENO, at, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ddpi_error_sys(err, errno, "cannot read standard input");
        if (got == 0)
            return DDP_OK;
        ddpi_buf_added(buf, (size_t)got);
    }
}

static ddp_status set_key_value(struct ddpctl_call *call, const void *value, size_t len,
                                struct ddp_error *err)
{
    uint64_t version;
    const char *key = call->words[0];
    int64_t expected = call->options->if_version;
    ddp_status status =
        expected < 0 ? ddp_store_set(call->store, key, value, len, call->timeout_ms, &version, err)
                     : ddp_store_compare_and_swap(call->store, key, (uint64_t)expected, value, len,
                                                  call->timeout_ms, &version, err);
    if (status == DDP_OK && call->options->json)
        return ddpctl_print_json(
            json_pack("{s:o,s:I}", "key", json_word(key), "version", (json_int_t)version), err);
    return status;
}

ddp_status ddpctl_run_set(struct ddpctl_call *call, struct ddp_error *err)
{
    const char *word = call->words[1];
    if (strcmp(word, "-") != 0)
        return set_key_value(call, word, strlen(word), err);
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, (size_t)DDP_STORE_VALUE_MAX + 1);
    ddp_status status = read_value(&buf, err);
    if (status == DDP_OK)
        status = set_key_value(call, ddpi_buf_head(&buf), ddpi_buf_len(&buf), err);
    ddpi_buf_finish(&buf);
    return status;
}

ddp_status ddpctl_run_add(struct ddpctl_call *call, struct ddp_error *err)
{
    int64_t delta = 1, sum;
    ddp_status status = DDP_OK;
    if (call->nwords > 1)
        status = ddpi_parse_int(call->words[1], INT64_MIN, INT64_MAX, &delta, err);
    if (status == DDP_OK)
        status = ddp_store_add(call->store, call->words[0], delta, call->timeout_ms, &sum, err);
    if (status != DDP_OK)
        return status;
    if (call->options->json)
        return ddpctl_print_json(
            json_pack("{s:o,s:I}", "key", json_word(call->words[0]), "value", (json_int_t)sum),
            err);
    printf("%" PRId64 "\n", sum);
    return DDP_OK;
}

ddp_status ddpctl_run_wait(struct ddpctl_call *call, struct ddp_error *err)
{
    ddp_status status = ddp_store_wait(call->store, (const char *const *)call->words, call->nwords,
                                       call->timeout_ms, err);
    return status == DDP_OK ? print_words(call, call->words, call->nwords, err) : status;
}

ddp_status ddpctl_run_list(struct ddpctl_call *call, struct ddp_error *err)
{
    char **keys;
    size_t count;
    const char *prefix = call->nwords > 0 ? call->words[0] : "";
    ddp_status status = ddp_store_list(call->store, prefix, call->timeout_ms, &keys, &count, err);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < count && !call->options->json; i++) {
        ddpctl_print_bytes(stdout, keys[i], strlen(keys[i]));
        putchar('\n');
    }
    status = print_words(call, keys, count, err);
    ddp_store_free(keys);
    return status;
}

ddp_status ddpctl_run_delete(struct ddpctl_call *call, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < call->nwords && status == DDP_OK; i++)
        status = ddp_store_delete(call->store, call->words[i], call->timeout_ms, err);
    return status == DDP_OK ? print_words(call, call->words, call->nwords, err) : status;
}

/* Convert lines of "name number" to {"name": number}. NULL: another format, or out of memory. */
static json_t *json_stats(const char *text)
{
    json_t *object = json_object();
    const char *line;
    size_t len;
    while (object != NULL && ddpi_parse_list_next(&text, '\n', &line, &len)) {
        char name[64], digits[24];
        int64_t value;
        size_t name_len = strcspn(line, " \n");
        if (len == 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)name_len, line);
        snprintf(digits, sizeof digits, "%.*s", (int)(len - name_len), line + name_len + 1);
        digits[strcspn(digits, "\n")] = '\0';
        if (ddpi_parse_int(digits, 0, INT64_MAX, &value, NULL) != DDP_OK ||
            json_object_set_new(object, name, json_integer(value)) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

ddp_status ddpctl_run_stats(struct ddpctl_call *call, struct ddp_error *err)
{
    char *text;
    ddp_status status = ddp_store_stats(call->store, call->timeout_ms, &text, err);
    if (status != DDP_OK)
        return status;
    if (call->options->json)
        status = ddpctl_print_json(json_stats(text), err);
    else
        fputs(text, stdout);
    ddp_store_free(text);
    return status;
}

ddp_status ddpctl_run_fence(struct ddpctl_call *call, struct ddp_error *err)
{
    const char *job = call->words[0];
    int64_t epoch;
    ddp_status status = ddpi_parse_int(call->words[1], 0, INT64_MAX, &epoch, err);
    if (status == DDP_OK)
        status = ddp_store_fence(call->store, job, (uint64_t)epoch, call->timeout_ms, NULL, err);
    if (status == DDP_OK && call->options->json)
        return ddpctl_print_json(
            json_pack("{s:o,s:I}", "job", json_word(job), "epoch", (json_int_t)epoch), err);
    return status;
}
