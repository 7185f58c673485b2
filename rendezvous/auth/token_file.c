/*
 * token_file.c - reads and creates token files. Owns what it opens until it returns; wipes every
 * copy of a secret except the caller's.
 *
 * A new token is written to a temporary file, which is then linked to the final name. The link
 * fails if the name exists, so the first process wins, and no process reads a partial token.
 */
#include "token_file.h"

#include "error.h"
#include "mem.h"
#include "parse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEX_SIZE = 2 * DDPI_KEY_SIZE,
    TRIES = 16, /* to find an unused temporary name */
};

#define KEY_LINE_BEGINS "ddprun-key"

void ddpi_token_random(void *bytes, size_t len)
{
    (void)!sodium_init(); /* initializes once; a failure matters to threads only */
    randombytes_buf(bytes, len);
}

struct ddpi_credential *ddpi_token_keep(const struct ddpi_credential *credential)
{
    (void)!sodium_init();
    struct ddpi_credential *kept = sodium_malloc(sizeof *kept);
    if (kept != NULL)
        *kept = *credential;
    return kept;
}

void ddpi_token_drop(struct ddpi_credential *kept)
{
    sodium_free(kept);
}

/* ---- the text ---- */

static bool parse_secret(const char *text, size_t len, uint8_t ret_secret[DDPI_KEY_SIZE])
{
    size_t got;
    return len == HEX_SIZE &&
           sodium_hex2bin(ret_secret, DDPI_KEY_SIZE, text, len, NULL, &got, NULL) == 0 &&
           got == DDPI_KEY_SIZE;
}

void ddpi_store_number_put(uint64_t number, char ret[DDPI_STORE_NUMBER])
{
    snprintf(ret, DDPI_STORE_NUMBER, "%016llx", (unsigned long long)number);
}

ddp_status ddpi_store_number_get(const char *text, uint64_t *ret, struct ddp_error *err)
{
    uint8_t bytes[8];
    size_t got, len = strlen(text);
    uint64_t number = 0;
    if (len != DDPI_STORE_NUMBER - 1 ||
        sodium_hex2bin(bytes, sizeof bytes, text, len, NULL, &got, NULL) != 0 || got != 8)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%.40s' is not the number of a store: 16 hexadecimal digits, as it "
                              "prints them when it starts",
                              text);
    for (size_t i = 0; i < sizeof bytes; i++)
        number = number << 8 | bytes[i];
    *ret = number;
    return DDP_OK;
}

enum {
    FIELD_NAME,
    FIELD_VERSION,
    FIELD_ROLE,
    FIELD_JOB,
    FIELD_EPOCH,
    FIELD_STORE,
    FIELD_SECRET,
    FIELDS
};

static bool parse_identity(char *const fields[FIELDS], struct ddpi_identity *ret)
{
    int64_t epoch;
    const char *job = fields[FIELD_JOB];
    bool none = strcmp(job, "-") == 0;
    if (strcmp(fields[FIELD_NAME], KEY_LINE_BEGINS) != 0 || strcmp(fields[FIELD_VERSION], "2") != 0)
        return false;
    if (!none && !ddpi_job_valid(job, strlen(job)))
        return false;
    if (!ddpi_role_of_name(fields[FIELD_ROLE], &ret->role) ||
        ddpi_parse_int(fields[FIELD_EPOCH], 0, INT64_MAX, &epoch, NULL) != DDP_OK ||
        ddpi_store_number_get(fields[FIELD_STORE], &ret->store, NULL) != DDP_OK)
        return false;
    snprintf(ret->job, sizeof ret->job, "%s", none ? "" : job);
    ret->epoch = (uint64_t)epoch;
    return true;
}

/* "ddprun-key 2 ROLE JOB EPOCH STORE HEX"; modifies @line. */
static bool parse_key_line(char *line, struct ddpi_credential *ret)
{
    char *fields[FIELDS] = {NULL};
    size_t count = 0;
    for (char *field; (field = strsep(&line, " ")) != NULL; count++) {
        if (count == FIELDS)
            return false;
        fields[count] = field;
    }
    return count == FIELDS && parse_identity(fields, &ret->identity) &&
           parse_secret(fields[FIELD_SECRET], strlen(fields[FIELD_SECRET]), ret->secret);
}

/* @text has @len bytes and a NUL after them. */
static bool parse_credential(char *text, size_t len, struct ddpi_credential *ret)
{
    struct ddpi_credential credential = {.is_token = true};
    if (len == 0 || text[len - 1] != '\n' || strlen(text) != len)
        return false;
    text[len - 1] = '\0';
    bool good = parse_secret(text, len - 1, credential.secret);
    if (!good) {
        credential.is_token = false;
        good = parse_key_line(text, &credential);
    }
    if (good)
        *ret = credential;
    ddpi_wipe(&credential, sizeof credential);
    return good;
}

ddp_status ddpi_token_key_line(const struct ddpi_credential *token,
                               const struct ddpi_identity *identity, char ret[DDPI_KEY_LINE],
                               struct ddp_error *err)
{
    uint8_t key[DDPI_KEY_SIZE];
    char hex[HEX_SIZE + 1], store[DDPI_STORE_NUMBER];
    ddp_status status = ddpi_credential_key(token, identity, key, err);
    if (status != DDP_OK)
        return status;
    sodium_bin2hex(hex, sizeof hex, key, sizeof key);
    ddpi_store_number_put(identity->store, store);
    snprintf(ret, DDPI_KEY_LINE, KEY_LINE_BEGINS " 2 %s %s %llu %s %s\n",
             ddpi_role_name(identity->role), *identity->job != '\0' ? identity->job : "-",
             (unsigned long long)identity->epoch, store, hex);
    ddpi_wipe(key, sizeof key);
    ddpi_wipe(hex, sizeof hex);
    return DDP_OK;
}

/* ---- reading ---- */

/* Up to @size bytes from the beginning; -1 with errno. */
static ssize_t read_whole(int fd, char *text, size_t size)
{
    size_t len = 0;
    while (len < size) {
        ssize_t got = pread(fd, text + len, size - len, (off_t)len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        len += (size_t)got;
    }
    return (ssize_t)len;
}

static ddp_status read_credential(int fd, const char *what, struct ddpi_credential *ret,
                                  struct ddp_error *err)
{
    char text[DDPI_KEY_LINE + 1];
    ddp_status status = DDP_OK;
    ssize_t len = read_whole(fd, text, DDPI_KEY_LINE);
    if (len < 0 && errno == ESPIPE) {
        status = ddpi_error_set(err, DDP_E_INVALID,
                                "%s is a pipe or the like, which can be read only once, and the "
                                "token is needed more often: give a regular file",
                                what);
    } else if (len < 0) {
        status = ddpi_error_sys(err, errno, "cannot read %s", what);
    } else {
        text[len] = '\0';
        if (!parse_credential(text, (size_t)len, ret))
            status = ddpi_error_set(
                err, DDP_E_INVALID,
                "%s holds neither a token, 64 hexadecimal digits and a newline, nor a key made by "
                "'ddpctl token derive' (one of an earlier version fits no store: make it again); "
                "copy it once more, or remove it and let 'ddpctl token make' make a new one",
                what);
    }
    ddpi_wipe(text, sizeof text);
    return status;
}

static ddp_status read_descriptor(int fd, const char *what, struct ddpi_credential *ret,
                                  struct ddp_error *err)
{
    ddp_status status = read_credential(fd, what, ret, err);
    if (status == DDP_OK)
        fcntl(fd, F_SETFD, FD_CLOEXEC); /* it was passed to this program only */
    return status;
}

ddp_status ddpi_token_read_fd(int fd, struct ddpi_credential *ret, struct ddp_error *err)
{
    char what[64];
    snprintf(what, sizeof what, "descriptor %d (DDPRUN_TOKEN_FD)", fd);
    return read_descriptor(fd, what, ret, err);
}

static ddp_status check_file(int fd, const char *path, struct ddp_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ddpi_error_sys(err, errno, "cannot look at the token file '%s'", path);
    if (!S_ISREG(st.st_mode))
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the token file '%s' is not a regular file; name one that is, or let "
                              "'ddpctl token make' make it",
                              path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the token file '%s' belongs to user %u, and so may not be your "
                              "token; if it is meant to be yours: chown %u '%s'",
                              path, st.st_uid, geteuid(), path);
    /* Root may let a group read its file, as Kubernetes does for pods of other users. */
    mode_t of_others = st.st_uid == geteuid() ? S_IRWXG | S_IRWXO : S_IWGRP | S_IXGRP | S_IRWXO;
    if ((st.st_mode & of_others) != 0)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "others have access to the token file '%s' (mode %04o): chmod %o "
                              "'%s', and if they may have read it, remove it and make a new one",
                              path, st.st_mode & 07777, of_others & S_IRGRP ? 0600 : 0640, path);
    if (st.st_size > DDPI_KEY_LINE)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the token file '%s' has %lld bytes, more than any token; is it "
                              "another file? 'ddpctl token make' makes one",
                              path, (long long)st.st_size);
    return DDP_OK;
}

static ddp_status explain_open(int sys_errno, const char *path, struct ddp_error *err)
{
    if (sys_errno == ENOENT || sys_errno == ENOTDIR)
        return ddpi_error_set(err, DDP_E_NOT_FOUND,
                              "there is no token file '%s'; copy it from the machine of the "
                              "store, or make one there: ddpctl token make --token-file='%s'",
                              path, path);
    if (sys_errno == ELOOP)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the token file '%s' is a symbolic link, which is not followed; name "
                              "the file itself: --token-file=\"$(readlink -f '%s')\"",
                              path, path);
    if (sys_errno == EACCES)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "the token file '%s' may not be read by user %u; if it is meant to "
                              "be yours: chown %u '%s' && chmod 600 '%s' (in a pod: fsGroup)",
                              path, geteuid(), geteuid(), path, path);
    return ddpi_error_sys(err, sys_errno, "cannot open the token file '%s'", path);
}

/* The number in "/dev/fd/N"; -1: another path. */
static int descriptor_of(const char *path)
{
    static const char folder[] = "/dev/fd/";
    int64_t fd;
    bool is = strncmp(path, folder, sizeof folder - 1) == 0 &&
              ddpi_parse_int(path + sizeof folder - 1, 0, INT_MAX, &fd, NULL) == DDP_OK;
    return is ? (int)fd : -1;
}

ddp_status ddpi_token_read(const char *path, struct ddpi_credential *ret, struct ddp_error *err)
{
    char what[DDP_ERROR_TEXT / 2];
    snprintf(what, sizeof what, "the token file '%s'", path);
    if (descriptor_of(path) >= 0)
        return read_descriptor(descriptor_of(path), what, ret, err);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return explain_open(errno, path, err);
    ddp_status status = check_file(fd, path, err);
    if (status == DDP_OK)
        status = read_credential(fd, what, ret, err);
    close(fd);
    return status;
}

/* ---- making ---- */

static int make_folder_above(const char *path, int levels)
{
    char *folder = ddpi_strdup(path), *slash = folder;
    if (folder == NULL)
        return ENOMEM;
    while (levels-- > 0 && (slash = strrchr(folder, '/')) != NULL)
        *slash = '\0';
    bool there = slash == NULL || folder[0] == '\0';
    int sys_errno = there || mkdir(folder, S_IRWXU) == 0 || errno == EEXIST ? 0 : errno;
    ddpi_free(folder);
    return sys_errno;
}

/* Create a file next to @path for this user only, named *@ret_name; -1 with errno. */
static int open_beside(const char *path, char **ret_name)
{
    int fd = -1;
    *ret_name = NULL;
    errno = EEXIST;
    for (int i = 0; i < TRIES && fd < 0 && errno == EEXIST; i++) {
        uint64_t number;
        ddpi_token_random(&number, sizeof number);
        ddpi_free(*ret_name);
        *ret_name = ddpi_asprintf("%s.%016llx", path, (unsigned long long)number);
        if (*ret_name == NULL) {
            errno = ENOMEM;
            return -1;
        }
        fd = open(*ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                  S_IRUSR | S_IWUSR);
    }
    return fd;
}

static int write_token(int fd)
{
    uint8_t secret[DDPI_KEY_SIZE];
    char text[HEX_SIZE + 1];
    ddpi_token_random(secret, sizeof secret);
    sodium_bin2hex(text, sizeof text, secret, sizeof secret);
    text[HEX_SIZE] = '\n';
    ssize_t written = write(fd, text, sizeof text);
    int sys_errno = written < 0 ? errno : written != (ssize_t)sizeof text ? ENOSPC : 0;
    if (sys_errno == 0 && fsync(fd) != 0)
        sys_errno = errno;
    ddpi_wipe(secret, sizeof secret);
    ddpi_wipe(text, sizeof text);
    return sys_errno;
}

static int make_token(const char *path)
{
    char *name = NULL;
    /* ~/.config and ~/.config/ddprun. A home would get the wrong owner, or lie on another disk. */
    int sys_errno = make_folder_above(path, 2);
    if (sys_errno == 0)
        sys_errno = make_folder_above(path, 1);
    if (sys_errno != 0)
        return sys_errno;
    int fd = open_beside(path, &name);
    if (fd < 0) {
        sys_errno = errno;
        goto free_name;
    }
    sys_errno = write_token(fd);
    if (sys_errno == 0 && link(name, path) != 0 && errno != EEXIST)
        sys_errno = errno;
    unlink(name);
    close(fd);
free_name:
    ddpi_free(name);
    return sys_errno;
}

ddp_status ddpi_token_obtain(const char *path, struct ddpi_credential *ret, struct ddp_error *err)
{
    ddp_status status = ddpi_token_read(path, ret, err);
    if (status != DDP_E_NOT_FOUND)
        return status;
    int sys_errno = make_token(path);
    if (sys_errno == ENOENT)
        return ddpi_error_set(
            err, DDP_E_SYSTEM,
            "cannot make the token file '%s': the folder that it is to be in does "
            "not exist, nor the one above that; make them",
            path);
    if (sys_errno != 0)
        return ddpi_error_sys(err, sys_errno, "cannot make the token file '%s'", path);
    return ddpi_token_read(path, ret, err);
}

ddp_status ddpi_token_default_path(const char *config_home, const char *home, char **ret,
                                   struct ddp_error *err)
{
    char *path = NULL;
    if (config_home != NULL && config_home[0] == '/')
        path = ddpi_asprintf("%s/ddprun/token", config_home);
    else if (home != NULL && home[0] == '/')
        path = ddpi_asprintf("%s/.config/ddprun/token", home);
    else
        return ddpi_error_set(err, DDP_E_INVALID,
                              "neither XDG_CONFIG_HOME nor HOME is set to an absolute path, where "
                              "the token would be; give --token-file=FILE");
    if (path == NULL)
        return ddpi_error_nomem(err, 1);
    *ret = path;
    return DDP_OK;
}
