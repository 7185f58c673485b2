/*
 * test_worker_program.c - what a worker executes, and the sentences about what it cannot.
 */
#include "check_main.h"
#include "worker_program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static char origin[4096];

static void write_file(const char *name, mode_t mode)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void setup(void)
{
    ck_assert_ptr_nonnull(getcwd(origin, sizeof origin));
    snprintf(dir, sizeof dir, "/tmp/test_program_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
    ck_assert_int_eq(mkdir("bin", 0700), 0);
    ck_assert_int_eq(mkdir("folder", 0700), 0);
    ck_assert_int_eq(mkdir("folder.py", 0700), 0);
    write_file("bin/tool", 0700);
    write_file("bin/python3", 0700);
    write_file("worker", 0700);
    write_file("plain", 0600);
    write_file("train.py", 0600);
    setenv("PATH", "bin", 1);
    unsetenv("PYTHON_EXEC");
    unsetenv("VIRTUAL_ENV");
    unsetenv("CONDA_PREFIX");
}

static void teardown(void)
{
    static const char *const files[] = {"bin/tool", "bin/python3", "worker", "plain", "train.py"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    rmdir("bin");
    rmdir("folder");
    rmdir("folder.py");
    ck_assert_int_eq(chdir(origin), 0);
    rmdir(dir);
}

/* @name with one argument resolves to the words of @expected, blanks between them. */
static void resolves(const char *name, bool module, bool no_python, const char *expected)
{
    char word[64], argument[] = "--lr", line[256] = "";
    snprintf(word, sizeof word, "%s", name);
    char *operands[] = {word, argument, NULL};
    struct program program;
    struct ddp_error error;
    ck_assert_msg(program_resolve(operands, NULL, module, no_python, &program, &error) == DDP_OK,
                  "%s", error.msg);
    size_t used = (size_t)snprintf(line, sizeof line, "%s:", program.path);
    for (char **arg = program.argv; *arg != NULL; arg++)
        used += (size_t)snprintf(line + used, sizeof line - used, " %s", *arg);
    ck_assert_str_eq(line, expected);
    program_finish(&program);
}

/* The sentence must contain @text, the offending word, and @remedy. */
static void refused(const char *name, bool module, bool no_python, const char *text,
                    const char *remedy)
{
    char word[64];
    snprintf(word, sizeof word, "%s", name);
    char *operands[] = {word, NULL};
    struct program program;
    struct ddp_error error = {0};
    ck_assert_int_ne(program_resolve(operands, NULL, module, no_python, &program, &error), DDP_OK);
    ck_assert_msg(strstr(error.msg, text) != NULL, "'%s' lacks '%s'", error.msg, text);
    ck_assert_msg(strstr(error.msg, remedy) != NULL, "'%s' lacks '%s'", error.msg, remedy);
}

START_TEST(what_is_executed)
{
    resolves("./worker", false, false, "./worker: ./worker --lr");
    resolves("tool", false, false, "bin/tool: tool --lr");
    resolves("./worker", false, true, "./worker: ./worker --lr");
    resolves("train.py", false, false, "bin/python3: bin/python3 -u train.py --lr");
    resolves("package.train", true, false, "bin/python3: bin/python3 -u -m package.train --lr");
    setenv("PYTHON_EXEC", "./worker", 1);
    resolves("train.py", false, false, "./worker: ./worker -u train.py --lr");
}
END_TEST

START_TEST(which_python)
{
    char active[128];
    snprintf(active, sizeof active, "%s/folder", dir);
    setenv("VIRTUAL_ENV", active, 1); /* which has been removed, but for the folder */
    resolves("train.py", false, false, "bin/python3: bin/python3 -u train.py --lr");
    setenv("VIRTUAL_ENV", ".", 1);
    resolves("train.py", false, false, "./bin/python3: ./bin/python3 -u train.py --lr");
    resolves("package.train", true, false, "./bin/python3: ./bin/python3 -u -m package.train --lr");
    resolves("tool", false, false, "bin/tool: tool --lr");
    setenv("PYTHON_EXEC", "./worker", 1);
    resolves("train.py", false, false, "./worker: ./worker -u train.py --lr");
    setenv("PYTHON_EXEC", "", 1);
    setenv("VIRTUAL_ENV", "", 1);
    resolves("train.py", false, false, "bin/python3: bin/python3 -u train.py --lr");
}
END_TEST

static void write_bytes(const char *name, mode_t mode, const char *bytes, size_t len)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
}

static void write_text(const char *name, mode_t mode, const char *text)
{
    write_bytes(name, mode, text, strlen(text));
}

START_TEST(what_python_runs_without_its_suffix)
{
    static const char zip[] = "PK\3\4...__main__.py...PK\5\6";
    static const char *const files[] = {"text",    "shebang", "LOUD.PY",
                                        "app.zip", "app",     "dir/__main__.py"};
    ck_assert_int_eq(mkdir("dir", 0700), 0);
    write_text("text", 0600, "import sys\n");
    write_text("shebang", 0600, "#!/usr/bin/env python3\nimport sys\n");
    write_text("LOUD.PY", 0600, "");
    write_bytes("app.zip", 0600, zip, sizeof zip - 1);
    write_bytes("app", 0600, zip, sizeof zip - 1);
    write_text("dir/__main__.py", 0600, "");
    resolves("text", false, false, "bin/python3: bin/python3 -u text --lr");
    resolves("./text", false, false, "bin/python3: bin/python3 -u ./text --lr");
    resolves("shebang", false, false, "bin/python3: bin/python3 -u shebang --lr");
    resolves("LOUD.PY", false, false, "bin/python3: bin/python3 -u LOUD.PY --lr");
    resolves("app.zip", false, false, "bin/python3: bin/python3 -u app.zip --lr");
    resolves("app", false, false, "bin/python3: bin/python3 -u app --lr");
    resolves("dir", false, false, "bin/python3: bin/python3 -u dir --lr");
    resolves("./dir/", false, false, "bin/python3: bin/python3 -u ./dir/ --lr");
    write_text("tool", 0600, "import sys\n"); /* PATH has one, too */
    resolves("tool", false, false, "bin/tool: tool --lr");
    unlink("tool");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    rmdir("dir");
}
END_TEST

START_TEST(what_is_no_program_of_python)
{
    static const struct {
        const char *name, *text;
    } files[] = {{"run.sh", "echo\n"},
                 {"notes.txt", "import\n"},
                 {"shell", "#!/bin/sh\n# python\n"},
                 {"empty", ""},
                 {"x.zip", "PK\5\6"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[32];
        snprintf(path, sizeof path, "./%s", files[i].name);
        write_text(path, 0600, files[i].text);
        refused(path, false, false, "is not executable", "chmod +x");
        unlink(path);
    }
    write_bytes("./binary", 0600, "\177ELF\0", 5);
    refused("./binary", false, false, "is not executable", "chmod +x");
    unlink("./binary");
}
END_TEST

/* Each activation puts its folder at the begin of PATH. */
START_TEST(the_environment_that_was_activated_last)
{
    char venv[128], conda[128], path[512], expected[512];
    snprintf(venv, sizeof venv, "%s/venv", dir);
    snprintf(conda, sizeof conda, "%s/conda", dir);
    static const char *const folders[] = {"venv", "venv/bin", "conda", "conda/bin"};
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(mkdir(folders[i], 0700), 0);
    write_file("venv/bin/python", 0700); /* and no python3 */
    write_file("conda/bin/python3", 0700);
    setenv("VIRTUAL_ENV", venv, 1);
    setenv("CONDA_PREFIX", conda, 1);
    const char *const orders[][3] = {{venv, conda, "venv/bin/python"},
                                     {conda, venv, "conda/bin/python3"}};
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/bin:%s/bin:bin", orders[i][0], orders[i][1]);
        setenv("PATH", path, 1);
        snprintf(expected, sizeof expected, "%s/%s: %s/%s -u train.py --lr", dir, orders[i][2], dir,
                 orders[i][2]);
        resolves("train.py", false, false, expected);
    }
    snprintf(path, sizeof path, "%s/bin:bin", conda); /* VIRTUAL_ENV was set by hand */
    setenv("PATH", path, 1);
    snprintf(expected, sizeof expected, "%s/bin/python: %s/bin/python -u train.py --lr", venv,
             venv);
    resolves("train.py", false, false, expected);
    unlink("venv/bin/python");
    unlink("conda/bin/python3");
    for (size_t i = 4; i > 0; i--)
        rmdir(folders[i - 1]);
}
END_TEST

START_TEST(a_script_with_a_placeholder_is_looked_for_by_each_worker)
{
    resolves("part${local_rank}.py", false, false,
             "bin/python3: bin/python3 -u part${local_rank}.py --lr");
}
END_TEST

START_TEST(what_is_refused)
{
    refused("./missing", false, false, "the program './missing' does not exist", dir);
    refused("/missing", false, false, "'/missing'", "check its path");
    refused("./folder", false, false, "'./folder' is a directory", "name a file in it");
    refused("/dev/null", false, false, "'/dev/null'", "name a regular file");
    refused("./plain", false, false, "'./plain'", "chmod +x ./plain");
    refused("./plain/x", false, false, "'./plain/x': Not a directory", "check its path");
    refused("nowhere", false, false, "'nowhere'", "./nowhere");
    refused("worker", false, false, "'worker'", "did you mean './worker'?");
    refused("missing.py", false, false, "the script 'missing.py' does not exist", dir);
    refused("folder.py", false, false, "'folder.py' is a directory", "name a file in it");
    refused("train.py", false, true, "'train.py'", "./train.py");
    refused("", false, false, "''", "variable");
    refused("", true, false, "''", "variable");
}
END_TEST

/* Commands are compared by their descriptions. */
START_TEST(a_command_is_described)
{
    char a[40], b[40];
    char script[] = "train.py", tab[] = "--name=a\tb", empty[] = "";
    char longer[] = "a long argument, of which the end counts: 1";
    char *const words[] = {script, tab, empty, NULL}, *const lengthy[] = {script, longer, NULL};
    program_describe(words, false, a, sizeof a);
    ck_assert_str_eq(a, "train.py --name=a?b ");
    program_describe(words, true, a, sizeof a);
    ck_assert_str_eq(a, "-m train.py --name=a?b ");
    program_describe(lengthy, false, a, sizeof a);
    ck_assert_uint_eq(strlen(a), sizeof a - 1);
    ck_assert_ptr_nonnull(strstr(a, "train.py a long argument, ... #"));
    longer[sizeof longer - 2] = '2';
    program_describe(lengthy, false, b, sizeof b);
    ck_assert_str_ne(a, b);
}
END_TEST

START_TEST(an_interpreter_that_is_not_there)
{
    unlink("bin/python3");
    refused("train.py", false, false, "'train.py'", "install it");
    setenv("PYTHON_EXEC", "./folder", 1);
    refused("package", true, false, "PYTHON_EXEC='./folder'", "unset it");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("worker_program");
    TCase *tcase = tcase_create("resolve");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, what_is_executed, which_python, what_python_runs_without_its_suffix,
              what_is_no_program_of_python, the_environment_that_was_activated_last,
              a_script_with_a_placeholder_is_looked_for_by_each_worker, what_is_refused,
              a_command_is_described, an_interpreter_that_is_not_there);
    suite_add_tcase(suite, tcase);
    return suite;
}
