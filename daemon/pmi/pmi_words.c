/*
 * pmi_words.c - finds words in a line, by linear search.
 */
#include "pmi_words.h"

#include "parse.h"

#include <limits.h>
#include <string.h>

static bool is_plain(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    return true;
}

bool pmi_words_get(const char *line, size_t len, const char *name, char *value, size_t size)
{
    size_t name_len = strlen(name);
    const char *end = line + len;
    for (const char *word = line; word < end;) {
        const char *blank = memchr(word, ' ', (size_t)(end - word));
        size_t word_len = (size_t)((blank != NULL ? blank : end) - word);
        if (word_len > name_len && word[name_len] == '=' && memcmp(word, name, name_len) == 0) {
            size_t value_len = word_len - name_len - 1;
            if (value_len >= size || !is_plain(word + name_len + 1, value_len))
                return false;
            memcpy(value, word + name_len + 1, value_len);
            value[value_len] = '\0';
            return true;
        }
        word += word_len + 1;
    }
    return false;
}

bool pmi_words_number(const char *line, size_t len, const char *name, int *ret)
{
    char text[16];
    int64_t number;
    if (!pmi_words_get(line, len, name, text, sizeof text) ||
        ddpi_parse_int(text, INT_MIN, INT_MAX, &number, NULL) != DDP_OK)
        return false;
    *ret = (int)number;
    return true;
}
