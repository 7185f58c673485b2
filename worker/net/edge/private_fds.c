/*
 * private_fds.c - the list of descriptors that children of this process close. Owns the list, not
 * the descriptors.
 *
 * The list is the one variable of the libraries that outlives a call and changes: the handler that
 * pthread_atfork() calls in a child gets no argument, so its data must have a fixed address. If a
 * process has two copies of this library, each has a list, and each child closes what is in
 * both.
 *
 * What is in it is known by its number and its inode. So closing it takes no further call: a number
 * that means another file by then is left alone.
 */
#include "private_fds.h"

#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
    bool prepared; /* the handlers are installed */
    struct entry *entries;
    size_t count, room;
} list = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The file that a descriptor means now. Another thread may close or reuse the number at the same
 * time: either answer is right then. ThreadSanitizer treats fstat() as a use of that thread's file,
 * but not statx(). */
static bool entry_identify(int fd, struct entry *ret_entry)
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

static bool entry_is_open(const struct entry *entry)
{
    struct entry now;
    return entry_identify(entry->fd, &now) && now.device_major == entry->device_major &&
           now.device_minor == entry->device_minor && now.inode == entry->inode;
}

/* ---- in a child: async-signal-safe code only ---- */

/* Replace it with an eventfd, so that destroying the communicator in the child closes no other
 * file. */
static void give_fd_back(int fd)
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
        if (entry_is_open(&list.entries[i]))
            give_fd_back(list.entries[i].fd);
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

static void list_forget_closed(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < list.count; i++)
        if (entry_is_open(&list.entries[i]))
            list.entries[kept++] = list.entries[i];
    list.count = kept;
}

/* Let a list grow that is half full of open ones, so that searching it stays rare. */
static bool list_make_room(void)
{
    if (list.count < list.room)
        return true;
    list_forget_closed();
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

bool ddpi_private_note(int fd)
{
    if (!list.prepared || !list_make_room() || !entry_identify(fd, &list.entries[list.count]))
        return false;
    list.count++;
    return true;
}

int ddpi_private_add(int fd)
{
    if (fd < 0 || ddpi_private_note(fd))
        return fd;
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
    /* Without this, children are not told apart, but they still have no sockets. */
    (void)madvise(mark, MARK_SIZE, MADV_WIPEONFORK);
    *mark = 1;
    return mark;
}

void ddpi_private_unmark(const uint8_t *mark)
{
    if (mark != NULL)
        munmap((void *)(uintptr_t)mark, MARK_SIZE);
}
