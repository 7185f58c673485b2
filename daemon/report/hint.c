/*
 * hint.c - a table of known ends: how the worker ended, what it wrote, what that means. Owns
 * nothing.
 */
#include "hint.h"

#include "excerpt.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

struct known {
    int signal;           /* that killed it; 0: it exited */
    const char *text;     /* in its last lines of stderr */
    const char *sentence; /* what this means, and what to do */
    bool of_interpreter;  /* only for scripts; the interpreter follows @sentence */
};

static const struct known table[] = {
    {SIGABRT, "terminate called without an active exception",
     "most likely its work was done: Python exited while a thread of PyTorch's process group was "
     "still freeing a tensor; end with torch.distributed.destroy_process_group() to prevent that",
     false},
    {0, "No module named ",
     "to use another interpreter, set PYTHON_EXEC or activate an environment (VIRTUAL_ENV); this "
     "one was ",
     true},
};

static bool ended_by(int wait_status, int sig)
{
    return sig == 0 ? WIFEXITED(wait_status)
                    : WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == sig;
}

static bool append_hint(struct ddpi_buf *out, const char *text)
{
    return ddpi_buf_append(out, text, strlen(text));
}

bool hint_add(int wait_status, const char *tail, size_t len, const char *interpreter,
              struct ddpi_buf *out)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct known *known = &table[i];
        if ((known->of_interpreter && interpreter == NULL) || len == 0 ||
            !ended_by(wait_status, known->signal) ||
            memmem(tail, len, known->text, strlen(known->text)) == NULL)
            continue;
        if (!append_hint(out, "  hint: ") || !append_hint(out, known->sentence) ||
            (known->of_interpreter && !append_hint(out, interpreter)) || !append_hint(out, "\n"))
            return false;
    }
    return true;
}

static bool has_more_lines(const char *text, size_t len)
{
    const char *end = memchr(text, '\n', len);
    return end != NULL && end + 1 < text + len;
}

bool hint_broken_program(int wait_status, const char *tail, size_t len)
{
    static const char *const names[] = {"SyntaxError", "IndentationError", "TabError",
                                        "ImportError", "ModuleNotFoundError"};
    struct excerpt name;
    if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 1 ||
        !excerpt_last_exception(tail, len, &name) || has_more_lines(tail + name.to, len - name.to))
        return false; /* a program that has caught it may have ended for another reason */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == name.to - name.from &&
            memcmp(tail + name.from, names[i], name.to - name.from) == 0)
            return true;
    return false;
}
