/*
 * memory_file.c - see memory_file.h. Owns nothing.
 */
#include "memory_file.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { STRETCH = 32 * 1024 * 1024 }; /* bytes that are allocated at once */

/* Above this limit the kernel sends a signal that kills. */
static ddp_status check_limit(size_t size, struct ddp_error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= size)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_SYSTEM,
                          "shared memory counts as a file of %zu bytes, and process %d may write "
                          "files of %llu (RLIMIT_FSIZE): raise that with 'ulimit -f'",
                          size, getpid(), (unsigned long long)limit.rlim_cur);
}

static ddp_status fill_file(int fd, size_t size, size_t now, int seals, struct ddp_error *err)
{
    if (ftruncate(fd, (off_t)size) != 0)
        return ddpi_error_sys(err, errno, "size shared memory to %zu bytes", size);
    ddp_status status = now > 0 ? ddpi_memory_file_allocate(fd, 0, now, err) : DDP_OK;
    if (status == DDP_OK && fcntl(fd, F_ADD_SEALS, seals) != 0)
        status = ddpi_error_sys(err, errno, "seal shared memory");
    return status;
}

ddp_status ddpi_memory_file_make(const char *name, size_t size, size_t now, int seals, int *ret_fd,
                                 struct ddp_error *err)
{
    ddp_status status = check_limit(size, err);
    if (status != DDP_OK)
        return status;
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return ddpi_error_sys(err, errno, "make shared memory");
    status = fill_file(fd, size, now, seals, err);
    if (status == DDP_OK)
        *ret_fd = fd;
    else
        close(fd);
    return status;
}

int ddpi_memory_file_keep(const char *name, const void *bytes, size_t len)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || (write(fd, bytes, len) == (ssize_t)len &&
                   fcntl(fd, F_ADD_SEALS, DDPI_SEALS_FIXED | F_SEAL_WRITE) == 0))
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

bool ddpi_memory_file_has(int fd, size_t size, int seals)
{
    struct stat info;
    int found = fcntl(fd, F_GET_SEALS);
    return found >= 0 && (found & seals) == seals && fstat(fd, &info) == 0 &&
           info.st_size >= (off_t)size;
}

ddp_status ddpi_memory_file_check(int fd, size_t size, const char *what, struct ddp_error *err)
{
    if (!ddpi_memory_file_has(fd, size, DDPI_SEALS_GROWING))
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the shared memory that was received is not for %s", what);
    return check_limit(size, err);
}

/* The kernel would hand out pages until there is none, and then kill a process to have more. */
static ddp_status check_machine(size_t len, struct ddp_error *err)
{
    struct sysinfo info;
    if (sysinfo(&info) != 0)
        return ddpi_error_sys(err, errno, "ask how much memory there is");
    uint64_t most = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
    if (len <= most)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_SYSTEM,
                          "%zu bytes of shared memory are more than the %llu of this machine", len,
                          (unsigned long long)most);
}

ddp_status ddpi_memory_file_may_allocate(size_t at, size_t len, struct ddp_error *err)
{
    ddp_status status = check_limit(at + len, err);
    return status == DDP_OK ? check_machine(len, err) : status;
}

/* A signal makes the kernel give up, and other processes wait for it: so a stretch at a time. */
ddp_status ddpi_memory_file_allocate(int fd, size_t at, size_t len, struct ddp_error *err)
{
    ddp_status status = ddpi_memory_file_may_allocate(at, len, err);
    for (size_t done = 0, part; done < len && status == DDP_OK; done += part) {
        int error;
        part = len - done < STRETCH ? len - done : STRETCH;
        do
            error = posix_fallocate(fd, (off_t)(at + done), (off_t)part);
        while (error == EINTR);
        if (error != 0)
            status = ddpi_error_sys(err, error, "get %zu bytes of shared memory", len);
    }
    return status;
}

bool ddpi_memory_file_release(int fd, size_t at, size_t len)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)len) == 0;
}

/* Addresses for @len bytes, from a multiple of a huge page on; NULL: there are none. */
static uint8_t *reserve_addresses(size_t len)
{
    size_t room = len + DDPI_HUGE_PAGE;
    uint8_t *all = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t head = -(uintptr_t)all % DDPI_HUGE_PAGE, tail = room - head - len;
    if (head > 0)
        munmap(all, head);
    if (tail > 0)
        munmap(all + head + len, tail);
    return all + head;
}

ddp_status ddpi_memory_file_map(int fd, size_t at, size_t len, uint8_t **ret_map,
                                struct ddp_error *err)
{
    uint8_t *wanted = len >= DDPI_HUGE_PAGE ? reserve_addresses(len) : NULL;
    uint8_t *map = mmap(wanted, len, PROT_READ | PROT_WRITE,
                        MAP_SHARED | (wanted != NULL ? MAP_FIXED : 0), fd, (off_t)at);
    if (map == MAP_FAILED) {
        int error = errno;
        if (wanted != NULL)
            munmap(wanted, len);
        return ddpi_error_sys(err, error, "map %zu bytes of shared memory", len);
    }
    *ret_map = map;
    return DDP_OK;
}
