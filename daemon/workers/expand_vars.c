/*
 * expand_vars.c - replaces the names of variables in a text, as Python's string.Template does.
 */
#include "expand_vars.h"

#include "buf.h"
#include "mem.h"

#include <ctype.h>
#include <string.h>

/* The variable that @text, after a '$', names, with the length of the reference; or NULL. */
static const struct text_var *find_var(const char *text, const struct text_var *vars,
                                       unsigned count, size_t *ret_len)
{
    bool braced = *text == '{';
    const char *name = text + braced;
    size_t len = 0;
    while (isalnum((unsigned char)name[len]) || name[len] == '_')
        len++;
    if (braced && name[len] != '}')
        return NULL;
    for (unsigned i = 0; i < count; i++)
        if (strlen(vars[i].name) == len && strncmp(vars[i].name, name, len) == 0) {
            *ret_len = len + (braced ? 2 : 0);
            return &vars[i];
        }
    return NULL;
}

char *expand_vars(const char *text, const struct text_var *vars, unsigned count)
{
    struct ddpi_buf out;
    ddpi_buf_init(&out, SIZE_MAX);
    bool ok = true;
    while (*text != '\0' && ok) {
        size_t len;
        const struct text_var *var = *text == '$' ? find_var(text + 1, vars, count, &len) : NULL;
        if (var != NULL) {
            ok = ddpi_buf_append(&out, var->value, strlen(var->value));
            text += 1 + len;
        } else {
            ok = ddpi_buf_append(&out, text, 1);
            text += text[0] == '$' && text[1] == '$' ? 2 : 1;
        }
    }
    char *result = ok ? ddpi_strndup((const char *)ddpi_buf_head(&out), ddpi_buf_len(&out)) : NULL;
    ddpi_buf_finish(&out);
    return result;
}
