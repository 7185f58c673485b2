/*
 * private_fds.c - the sockets that children of this process give back. Owns the list of them, not
 * the sockets.
 *
 * The list is the one variable of the libraries that outlives a call and changes: the handler that
 * pthread_atfork() calls in a child gets no argument, so what it needs has to lie at a fixed place.
 * Two copies of this library in one process have a list each, and each child gives both back.
 *
 * A socket is known by its number and its inode. So nothing is to be said when it is closed: a
 * number that means another file by then is left alone, whoever has closed and opened what.
 */
#include "private_fds.h"

#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIST_MIN = 64, MARK_SIZE = 4096 };

struct entry {
    int fd;
    uint32_t device_major, device_minor;
    uint64_t inode;
};

static struct {
    pthread_mutex_t mutex;
    bool prepared; /* the handlers are there */
    struct entry *entries;
    size_t count, room;
} list = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* What a number stands for now. Another thread may close it, or open a file of its own under it, at
 * the same time: either answer is right then. ThreadSanitizer takes fstat() for a use of that
 * thread's file, and statx() for what it is here, a question about a number. */
static bool identify(int fd, struct entry *ret_entry)
{
    struct statx info;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO, &info) != 0)
        return false;
    *ret_entry = (struct entry){.fd = fd,
                                .device_major = info.stx_dev_major,
                                .device_minor = info.stx_dev_minor,
                                .inode = info.stx_ino};
    return true;
}

static bool is_open(const struct entry *entry)
{
    struct entry now;
    return identify(entry->fd, &now) && now.device_major == entry->device_major &&
           now.device_minor == entry->device_minor && now.inode == entry->inode;
}

/* ---- in a child: only what is safe in a handler of signals ---- */

/* Its number goes on to mean a file of ours, so that whoever frees the communicator in the child
 * closes nothing else. */
static void give_back(int fd)
{
    close(fd);
    int nothing = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (nothing < 0 || nothing == fd)
        return;
    dup3(nothing, fd, O_CLOEXEC);
    close(nothing);
}

static void give_all_back(void)
{
    for (size_t i = 0; i < list.count; i++)
        if (is_open(&list.entries[i]))
            give_back(list.entries[i].fd);
    list.count = 0;
    pthread_mutex_unlock(&list.mutex);
}

/* ---- the list ---- */

void ddpi_private_begin(void)
{
    pthread_mutex_lock(&list.mutex);
    if (!list.prepared)
        list.prepared = pthread_atfork(ddpi_private_begin, ddpi_private_end, give_all_back) == 0;
}

void ddpi_private_end(void)
{
    pthread_mutex_unlock(&list.mutex);
}

static void forget_closed(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < list.count; i++)
        if (is_open(&list.entries[i]))
            list.entries[kept++] = list.entries[i];
    list.count = kept;
}

/* A list that is half full of open ones grows, so that looking through it stays rare. */
static bool make_room(void)
{
    if (list.count < list.room)
        return true;
    forget_closed();
    if (list.room > 0 && list.count <= list.room / 2)
        return true;
    size_t room = list.room > 0 ? 2 * list.room : LIST_MIN;
    struct entry *entries = ddpi_realloc(list.entries, room, sizeof *entries);
    if (entries == NULL)
        return list.count < list.room;
    list.entries = entries;
    list.room = room;
    return true;
}

int ddpi_private_add(int fd)
{
    if (fd < 0)
        return fd;
    if (list.prepared && make_room() && identify(fd, &list.entries[list.count])) {
        list.count++;
        return fd;
    }
    close(fd);
    errno = ENOMEM;
    return -1;
}

/* ---- the mark ---- */

const uint8_t *ddpi_private_mark(void)
{
    uint8_t *mark =
        mmap(NULL, MARK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mark == MAP_FAILED)
        return NULL;
    /* Where the kernel cannot do that, children are not told apart; they have no sockets, though.
     */
    (void)madvise(mark, MARK_SIZE, MADV_WIPEONFORK);
    *mark = 1;
    return mark;
}

void ddpi_private_unmark(const uint8_t *mark)
{
    if (mark != NULL)
        munmap((void *)(uintptr_t)mark, MARK_SIZE);
}
