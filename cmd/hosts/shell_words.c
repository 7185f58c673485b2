/*
 * shell_words.c - quotes with single quotes, in which no shell changes anything but the quote
 * itself and, in a C shell, '!'.
 */
#include "shell_words.h"

#include <ctype.h>
#include <string.h>

/* Words of these alone need no quotes, and are easier to read in a list of processes. */
static bool is_plain(const char *word)
{
    for (const char *c = word; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("_-+=./:,@%", *c) == NULL)
            return false;
    return *word != '\0';
}

bool shell_words_add(struct ddpi_buf *line, const char *word)
{
    if (ddpi_buf_len(line) > 0 && !ddpi_buf_append(line, " ", 1))
        return false;
    if (is_plain(word))
        return ddpi_buf_append(line, word, strlen(word));
    bool ok = ddpi_buf_append(line, "'", 1);
    while (ok && *word != '\0') {
        size_t len = strcspn(word, "'!");
        ok = ddpi_buf_append(line, word, len);
        word += len;
        for (; ok && (*word == '\'' || *word == '!'); word++) /* outside of the quotes */
            ok = ddpi_buf_append(line, "'\\", 2) && ddpi_buf_append(line, word, 1) &&
                 ddpi_buf_append(line, "'", 1);
    }
    return ok && ddpi_buf_append(line, "'", 1);
}

size_t shell_words_split(char *text, char **words, size_t max)
{
    size_t count = 0;
    for (char *word; (word = strsep(&text, " \t")) != NULL;) {
        if (*word == '\0')
            continue;
        if (count == max)
            return max + 1;
        words[count++] = word;
    }
    words[count] = NULL;
    return count;
}
