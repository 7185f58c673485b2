/*
 * head_command.c - see head_command.h.
 */
#include "head_command.h"

#include "buf.h"
#include "mem.h"
#include "shell_words.h"

#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 128 * 1024 }; /* of one word of a command, on Linux */

bool head_command_is_local(const struct head_command *command, const struct host_entry *host)
{
    static const char *const loopback[] = {"localhost", "127.0.0.1", "::1"};
    if (host->user[0] != '\0')
        return false; /* another user, perhaps */
    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++)
        if (strcmp(host->name, loopback[i]) == 0)
            return true;
    return strcmp(host->name, command->this_host) == 0;
}

/* Words behind each other, each with its NUL. */
struct words {
    struct ddpi_buf text;
    size_t count;
    bool ok;
};

static void add_word(struct words *words, const char *word)
{
    words->ok = words->ok && ddpi_buf_append(&words->text, word, strlen(word) + 1);
    words->count++;
}

static void add_words(struct words *words, char *const *list)
{
    for (; *list != NULL; list++)
        add_word(words, *list);
}

/* The options that the head decides, and the program. */
static void add_own(struct words *words, const struct head_command *command,
                    const struct host_entry *host, uint32_t rank, const char *store)
{
    char text[512];
    snprintf(text, sizeof text, "--nnodes=%u:%u", command->min_nodes, command->max_nodes);
    add_word(words, text);
    snprintf(text, sizeof text, "--node-rank=%u", rank);
    add_word(words, text);
    if (host->slots > 0) {
        snprintf(text, sizeof text, "--nproc-per-node=%u", host->slots);
        add_word(words, text);
    }
    add_word(words, "--rdzv-backend=static");
    snprintf(text, sizeof text, "--rdzv-endpoint=%s", store);
    add_word(words, text);
    snprintf(text, sizeof text, "--rdzv-id=%s", command->job);
    add_word(words, text);
    if (command->has_token) {
        snprintf(text, sizeof text, "--token-file=/dev/fd/%d", HEAD_TOKEN_FD);
        add_word(words, text);
    }
    if (command->template != NULL) {
        snprintf(text, sizeof text, "--log-line-prefix-template=%s", command->template);
        add_word(words, text);
    }
    add_word(words, "--");
    add_words(words, command->operands);
}

static void add_agent(struct words *words, const struct head_command *command,
                      const struct host_entry *host, uint32_t rank, const char *store)
{
    add_word(words, command->program);
    add_word(words, "--leash");
    add_words(words, command->options);
    add_own(words, command, host, rank, store);
}

/* All words as one for a remote shell, which joins its arguments with blanks anyway. */
static void add_line(struct words *words, const struct head_command *command,
                     const struct words *agent)
{
    struct ddpi_buf line;
    ddpi_buf_init(&line, LINE_MAX_BYTES);
    bool ok = agent->ok && ddpi_buf_append(&line, "cd", 2) &&
              shell_words_add(&line, command->folder) &&
              ddpi_buf_append(&line, " && exec", strlen(" && exec"));
    const char *word = (const char *)ddpi_buf_head(&agent->text);
    for (size_t i = 0; i < agent->count && ok; i++, word += strlen(word) + 1)
        ok = shell_words_add(&line, word);
    words->ok = words->ok && ok && ddpi_buf_append(&line, "", 1);
    if (words->ok)
        add_word(words, (const char *)ddpi_buf_head(&line));
    ddpi_buf_finish(&line);
}

/* One allocation holds the array and, after it, the text. */
static char **make_array(const struct words *words)
{
    size_t len = ddpi_buf_len(&words->text), pointers = (words->count + 1) * sizeof(char *);
    char **array = words->ok ? ddpi_calloc(1, pointers + len) : NULL;
    if (array == NULL)
        return NULL;
    char *text = (char *)array + pointers;
    memcpy(text, ddpi_buf_head(&words->text), len);
    for (size_t i = 0; i < words->count; i++, text += strlen(text) + 1)
        array[i] = text;
    return array;
}

char **head_command_make(const struct head_command *command, const struct host_entry *host,
                         uint32_t rank, const char *store)
{
    struct words agent = {.ok = true}, words = {.ok = true};
    char target[HOST_USER_MAX + DDPI_HOST_MAX + 1];
    ddpi_buf_init(&agent.text, LINE_MAX_BYTES * 8);
    ddpi_buf_init(&words.text, LINE_MAX_BYTES * 8);
    bool local = head_command_is_local(command, host);
    add_agent(local ? &words : &agent, command, host, rank, store);
    if (!local) {
        snprintf(target, sizeof target, "%s%s%s", host->user, host->user[0] != '\0' ? "@" : "",
                 host->name);
        add_words(&words, command->launcher);
        add_word(&words, target);
        add_line(&words, command, &agent);
    }
    char **array = make_array(&words);
    ddpi_buf_finish(&agent.text);
    ddpi_buf_finish(&words.text);
    return array;
}
