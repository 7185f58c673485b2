/*
 * test_token_file.c - token files: what is read, what is refused and with which remedy, and first
 * uses by many processes at once.
 */
#include "check_main.h"
#include "token_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_TEXT = 256 };

#define STORE  "1234567890abcdef "
#define DIGITS "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static char dir[PATH_TEXT / 2], path[PATH_TEXT];
static struct ddp_error err;
static struct ddpi_credential got;

static void setup(void)
{
    snprintf(dir, sizeof dir, "/tmp/ddprun-test-token-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/token", dir);
}

static void remove_all(const char *name)
{
    DIR *stream = opendir(name);
    ck_assert_ptr_nonnull(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        char inside[2 * PATH_TEXT + 256];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(inside, sizeof inside, "%s/%s", name, entry->d_name);
        if (entry->d_type == DT_DIR)
            remove_all(inside);
        else
            unlink(inside);
    }
    closedir(stream);
    rmdir(name);
}

static void teardown(void)
{
    remove_all(dir);
}

static void write_bytes(const char *name, const void *bytes, size_t len, mode_t mode)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

static void write_text(const char *text)
{
    write_bytes(path, text, strlen(text), 0600);
}

static void assert_refused(ddp_status wanted, const char *why, const char *remedy)
{
    got.is_token = true;
    got.secret[0] = 77;
    ck_assert_int_eq(ddpi_token_read(path, &got, &err), wanted);
    ck_assert_msg(strstr(err.msg, path) != NULL && strstr(err.msg, why) != NULL &&
                      strstr(err.msg, remedy) != NULL,
                  "%s", err.msg);
    ck_assert(got.is_token && got.secret[0] == 77);
}

START_TEST(a_token_is_read)
{
    write_text(DIGITS "\n");
    ck_assert_int_eq(ddpi_token_read(path, &got, &err), DDP_OK);
    ck_assert(got.is_token);
    for (unsigned i = 0; i < DDPI_KEY_SIZE; i++)
        ck_assert_uint_eq(got.secret[i], i % 16 * 0x11);
    ck_assert_int_eq(chmod(path, 0400), 0);
    ck_assert_int_eq(ddpi_token_read(path, &got, &err), DDP_OK);
}
END_TEST

START_TEST(a_key_is_read)
{
    write_text("ddprun-key 2 worker job.1 42 " STORE DIGITS "\n");
    ck_assert_int_eq(ddpi_token_read(path, &got, &err), DDP_OK);
    ck_assert(!got.is_token && got.identity.role == DDPI_ROLE_WORKER && got.identity.epoch == 42);
    ck_assert_str_eq(got.identity.job, "job.1");
    ck_assert_uint_eq(got.secret[1], 0x11);
    write_text("ddprun-key 2 observer - 0 " STORE DIGITS "\n");
    ck_assert_int_eq(ddpi_token_read(path, &got, &err), DDP_OK);
    ck_assert(got.identity.role == DDPI_ROLE_OBSERVER && got.identity.job[0] == '\0');
}
END_TEST

START_TEST(a_key_line_reads_as_the_key_it_was_made_of)
{
    struct ddpi_credential token = {.is_token = true, .secret = {9, 8, 7}};
    const struct ddpi_identity identities[] = {
        {DDPI_ROLE_OBSERVER, "", 0, false, 0x1234567890abcdef},
        {DDPI_ROLE_WORKER, "j", INT64_MAX, false, 0x1234567890abcdef}};
    for (size_t i = 0; i < 2; i++) {
        char line[DDPI_KEY_LINE];
        uint8_t key[DDPI_KEY_SIZE];
        ck_assert_int_eq(ddpi_token_key_line(&token, &identities[i], line, &err), DDP_OK);
        write_text(line);
        ck_assert_int_eq(ddpi_token_read(path, &got, &err), DDP_OK);
        ck_assert_int_eq(ddpi_credential_key(&got, &identities[i], key, &err), DDP_OK);
        ck_assert_int_eq(ddpi_credential_key(&token, &identities[i], token.secret, &err), DDP_OK);
        ck_assert_mem_eq(key, token.secret, sizeof key);
        ck_assert_int_eq(ddpi_token_key_line(&got, &identities[1 - i], line, &err), DDP_E_DENIED);
    }
}
END_TEST

START_TEST(numbers_of_stores)
{
    char text[DDPI_STORE_NUMBER];
    uint64_t number;
    ddpi_store_number_put(0x00000000a0b0c0d0, text);
    ck_assert_str_eq(text, "00000000a0b0c0d0");
    ck_assert_int_eq(ddpi_store_number_get(text, &number, &err), DDP_OK);
    ck_assert_uint_eq(number, 0xa0b0c0d0);
    static const char *const bad[] = {
        "", "0", "00000000a0b0c0d", "00000000a0b0c0d0f", "00000000a0b0c0dx", "0x000000a0b0c0d0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(ddpi_store_number_get(bad[i], &number, &err), DDP_E_INVALID);
        ck_assert_ptr_nonnull(strstr(err.msg, "16 hexadecimal digits"));
    }
}
END_TEST

START_TEST(the_longest_line_fits)
{
    struct ddpi_credential token = {.is_token = true};
    struct ddpi_identity identity = {.role = DDPI_ROLE_OBSERVER, .epoch = INT64_MAX};
    char line[DDPI_KEY_LINE];
    memset(identity.job, 'j', DDPI_JOB_MAX);
    ck_assert_int_eq(ddpi_token_key_line(&token, &identity, line, &err), DDP_OK);
    write_text(line);
    ck_assert_int_eq(ddpi_token_read(path, &got, &err), DDP_OK);
    ck_assert_str_eq(got.identity.job, identity.job);
}
END_TEST

START_TEST(other_content_is_refused)
{
    static const char *const texts[] = {
        "",
        "\n",
        DIGITS,
        DIGITS "\n\n",
        DIGITS " \n",
        " " DIGITS "\n",
        DIGITS "0\n",
        "0" DIGITS "0\n",
        DIGITS "\r\n",
        "g0112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n",
        "ddprun-key 2 worker j 1 " STORE DIGITS,
        "ddprun-key 2 worker j 1 " STORE DIGITS " \n",
        "ddprun-key 2 worker j 1 " STORE DIGITS "0\n",
        "ddprun-key 1 worker j 1\n",
        "ddprun-key 2 worker  1 " STORE DIGITS "\n",
        "ddprun-key 2 worker .j 1 " STORE DIGITS "\n",
        "ddprun-key 2 worker j -1 " STORE DIGITS "\n",
        "ddprun-key 2 worker j x " STORE DIGITS "\n",
        "ddprun-key 2 root j 1 " STORE DIGITS "\n",
        "ddprun-key 3 worker j 1 " STORE DIGITS "\n",
        "ddprun-key 1 worker j 1 " DIGITS "\n",
        "ddprun-key 2 worker j 1 " DIGITS "\n",
        "ddprun-key 2 worker j 1 0123 " DIGITS "\n",
        "ddprun-key 2 worker j 1 x123456789abcdef " DIGITS "\n",
        "ddprun-kex 2 worker j 1 " STORE DIGITS "\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(texts[i]);
        assert_refused(DDP_E_INVALID, "neither a token", "ddpctl token make");
        ck_assert_ptr_null(strstr(err.msg, "2233445566778899"));
    }
    write_bytes(path, DIGITS "\0\n", 66, 0600);
    assert_refused(DDP_E_INVALID, "neither a token", "ddpctl token make");
    char large[DDPI_KEY_LINE + 1];
    memset(large, 'a', sizeof large);
    write_bytes(path, large, DDPI_KEY_LINE, 0600);
    assert_refused(DDP_E_INVALID, "neither a token", "ddpctl token make");
    write_bytes(path, large, sizeof large, 0600);
    assert_refused(DDP_E_INVALID, "257 bytes", "ddpctl token make");
}
END_TEST

START_TEST(a_file_that_others_can_read_is_refused)
{
    for (mode_t bits = 1; bits < 0100; bits <<= 1) {
        write_bytes(path, DIGITS "\n", 65, 0600 | bits);
        assert_refused(DDP_E_DENIED, "others have access", "chmod 600");
    }
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
    char other[PATH_TEXT];
    assert_refused(DDP_E_NOT_FOUND, "no token file", "ddpctl token make");
    snprintf(other, sizeof other, "%s/other", dir);
    write_bytes(other, DIGITS "\n", 65, 0600);
    ck_assert_int_eq(symlink(other, path), 0);
    assert_refused(DDP_E_DENIED, "symbolic link", "readlink -f");
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    assert_refused(DDP_E_DENIED, "not a regular file", "ddpctl token make");
    rmdir(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    assert_refused(DDP_E_DENIED, "not a regular file", "ddpctl token make");
    unlink(path);
    write_bytes(path, "", 0, 0600);
    snprintf(path, sizeof path, "%s/token/below", dir);
    assert_refused(DDP_E_NOT_FOUND, "no token file", "ddpctl token make");
}
END_TEST

/* In a child, which can be another user where the test is root. */
static void as_nobody(void (*check)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        if (setuid(65534) != 0)
            _exit(1);
        check();
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

static void read_what_is_roots(void)
{
    if (ddpi_token_read(path, &got, &err) != DDP_E_DENIED || strstr(err.msg, "chown 65534") == NULL)
        _exit(2);
}

static void read_what_a_group_may(void)
{
    if (ddpi_token_read(path, &got, &err) != DDP_OK)
        _exit(2);
}

static void read_what_all_may(void)
{
    if (ddpi_token_read(path, &got, &err) != DDP_E_DENIED || strstr(err.msg, "chmod 640") == NULL)
        _exit(2);
}

START_TEST(root_may_let_a_group_read_its_file)
{
    if (geteuid() != 0)
        SKIP("root, who alone can be another user");
    write_bytes(path, DIGITS "\n", 65, 0640);
    ck_assert_int_eq(chown(path, 0, 0), 0);
    ck_assert_int_eq(chmod(dir, 0755), 0);
    as_nobody(read_what_a_group_may); /* its group stays root's */
    for (mode_t bits = 1; bits < 0040; bits <<= 1) {
        ck_assert_int_eq(chmod(path, 0640 | bits), 0);
        as_nobody(read_what_all_may);
    }
}
END_TEST

START_TEST(the_file_of_somebody_else_is_refused)
{
    if (geteuid() != 0)
        SKIP("root, who alone can make one");
    write_text(DIGITS "\n");
    ck_assert_int_eq(chown(path, 1000, 1000), 0);
    assert_refused(DDP_E_DENIED, "belongs to user 1000", "chown 0");
    ck_assert_int_eq(chown(path, 0, 0), 0);
    ck_assert_int_eq(chmod(dir, 0755), 0);
    as_nobody(read_what_is_roots);
}
END_TEST

START_TEST(a_descriptor_may_be_read_by_several)
{
    int fd = memfd_create("token", MFD_ALLOW_SEALING); /* as it is inherited */
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, DIGITS "\n", 65), 65);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(ddpi_token_read_fd(fd, &got, &err), DDP_OK);
    ck_assert(got.is_token && got.secret[1] == 0x11);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    close(fd);
    ck_assert_int_eq(ddpi_token_read_fd(fd, &got, &err), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, "DDPRUN_TOKEN_FD"));
}
END_TEST

/* As a shell gives one for <(cat token): what the user wrote is named, and what to do. */
START_TEST(a_pipe_cannot_be_read_twice)
{
    int pipe_fds[2];
    ck_assert_int_eq(pipe(pipe_fds), 0);
    ck_assert_int_eq(write(pipe_fds[1], DIGITS "\n", 65), 65);
    snprintf(path, sizeof path, "/dev/fd/%d", pipe_fds[0]);
    assert_refused(DDP_E_INVALID, "is a pipe", "give a regular file");
    ck_assert_ptr_null(strstr(err.msg, "DDPRUN_TOKEN_FD"));
    ck_assert_int_eq(ddpi_token_read_fd(pipe_fds[0], &got, &err), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "DDPRUN_TOKEN_FD"));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}
END_TEST

/* ---- making ---- */

static mode_t mode_of(const char *name)
{
    struct stat st;
    ck_assert_int_eq(stat(name, &st), 0);
    return st.st_mode & 07777;
}

START_TEST(a_first_use_makes_it)
{
    struct ddpi_credential again;
    snprintf(path, sizeof path, "%s/.config/ddprun/token", dir);
    ck_assert_int_eq(ddpi_token_obtain(path, &got, &err), DDP_OK);
    ck_assert(got.is_token);
    ck_assert_uint_eq(mode_of(path), 0600);
    snprintf(path, sizeof path, "%s/.config/ddprun", dir);
    ck_assert_uint_eq(mode_of(path), 0700);
    snprintf(path, sizeof path, "%s/.config/ddprun/token", dir);
    ck_assert_int_eq(ddpi_token_obtain(path, &again, &err), DDP_OK);
    ck_assert_mem_eq(again.secret, got.secret, sizeof got.secret);
    unlink(path);
    ck_assert_int_eq(ddpi_token_obtain(path, &again, &err), DDP_OK);
    ck_assert_mem_ne(again.secret, got.secret, sizeof got.secret);
}
END_TEST

START_TEST(a_home_is_not_made)
{
    snprintf(path, sizeof path, "%s/home/.config/ddprun/token", dir);
    ck_assert_int_eq(ddpi_token_obtain(path, &got, &err), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, "nor the one above that"));
    snprintf(path, sizeof path, "%s/home", dir);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_bad_one_is_not_replaced)
{
    write_bytes(path, DIGITS "\n", 65, 0644);
    ck_assert_int_eq(ddpi_token_obtain(path, &got, &err), DDP_E_DENIED);
    unlink(path);
    ck_assert_int_eq(symlink("/nowhere/at/all", path), 0);
    ck_assert_int_eq(ddpi_token_obtain(path, &got, &err), DDP_E_DENIED);
    snprintf(path, sizeof path, "/dev/null/token");
    ck_assert_int_eq(ddpi_token_obtain(path, &got, &err), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, path));
}
END_TEST

/* All begin when the last is there; each tells what it has got. */
START_TEST(of_many_first_uses_one_makes_it)
{
    enum { PROCESSES = 8 };
    int gate[2], tell[2];
    pid_t pids[PROCESSES];
    snprintf(path, sizeof path, "%s/a/b/token", dir);
    ck_assert_int_eq(pipe(gate), 0);
    ck_assert_int_eq(pipe(tell), 0);
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            char none;
            close(gate[1]);
            (void)!read(gate[0], &none, 1);
            bool good = ddpi_token_obtain(path, &got, &err) == DDP_OK &&
                        write(tell[1], got.secret, sizeof got.secret) == sizeof got.secret;
            _exit(good ? 0 : 1);
        }
    }
    close(gate[1]);
    uint8_t first[DDPI_KEY_SIZE], other[DDPI_KEY_SIZE];
    ck_assert_int_eq(read(tell[0], first, sizeof first), sizeof first);
    for (int i = 1; i < PROCESSES; i++) {
        ck_assert_int_eq(read(tell[0], other, sizeof other), sizeof other);
        ck_assert_mem_eq(other, first, sizeof first);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_int_eq(status, 0);
    }
    /* The temporary ones are gone: the directory can go without them. */
    ck_assert_int_eq(unlink(path), 0);
    snprintf(path, sizeof path, "%s/a/b", dir);
    ck_assert_int_eq(rmdir(path), 0);
    close(gate[0]);
    close(tell[0]);
    close(tell[1]);
}
END_TEST

START_TEST(where_the_token_of_a_user_is)
{
    static const struct {
        const char *config_home, *home, *wanted;
    } rows[] = {
        {NULL, "/at/u", "/at/u/.config/ddprun/token"},
        {"", "/at/u", "/at/u/.config/ddprun/token"},
        {"relative", "/at/u", "/at/u/.config/ddprun/token"},
        {"/etc/xdg", "/at/u", "/etc/xdg/ddprun/token"},
        {"/etc/xdg", NULL, "/etc/xdg/ddprun/token"},
        {NULL, NULL, NULL},
        {NULL, "", NULL},
        {NULL, "relative", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *where = NULL;
        ddp_status status =
            ddpi_token_default_path(rows[i].config_home, rows[i].home, &where, &err);
        ck_assert_int_eq(status, rows[i].wanted != NULL ? DDP_OK : DDP_E_INVALID);
        if (status == DDP_OK)
            ck_assert_str_eq(where, rows[i].wanted);
        free(where);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("token");
    TCase *reading = tcase_create("reading");
    tcase_add_checked_fixture(reading, setup, teardown);
    ADD_TESTS(reading, a_token_is_read, a_key_is_read, a_key_line_reads_as_the_key_it_was_made_of,
              numbers_of_stores, the_longest_line_fits, other_content_is_refused,
              a_file_that_others_can_read_is_refused, what_is_no_file_is_refused,
              root_may_let_a_group_read_its_file, the_file_of_somebody_else_is_refused,
              a_descriptor_may_be_read_by_several, a_pipe_cannot_be_read_twice);
    suite_add_tcase(suite, reading);
    TCase *making = tcase_create("making");
    tcase_add_checked_fixture(making, setup, teardown);
    ADD_TESTS(making, a_first_use_makes_it, a_home_is_not_made, a_bad_one_is_not_replaced,
              of_many_first_uses_one_makes_it, where_the_token_of_a_user_is);
    suite_add_tcase(suite, making);
    return suite;
}
