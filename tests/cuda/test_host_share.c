/*
 * test_host_share.c - memory of one process in another: handles of CUDA IPC and descriptors of
 * virtual memory, between processes that each have a driver of their own.
 *
 * The owner is a forked process that answers to bytes on a socket; the test is the one that opens.
 */
#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 5000 };

/* What the owner says once it is ready. */
struct offer {
    struct ddpi_cu_ipc_handle handle;
    int fd; /* of virtual memory, in the owner's table of files */
};

static const size_t VIRTUAL_SIZE = 2 << 20;

static pid_t owner;
static int line; /* to the owner */

static void own(int socket, const char *visible)
{
    struct offer offer = {0};
    const struct ddpi_cu_mem_prop prop = {.type = DDPI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .requested_handle_types =
                                              DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          .location = {DDPI_CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    char byte = 0;
    if (visible != NULL)
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    start("2");
    ddpi_cu_deviceptr pointer = allocate(SIZE);
    CU(cuda.memset_d8_async(pointer, 'o', SIZE, NULL));
    CU(cuda.stream_synchronize(NULL));
    CU(cuda.ipc_get_mem_handle(&offer.handle, pointer + 10));
    ddpi_cu_mem_handle physical = 0;
    CU(cuda.mem_create(&physical, VIRTUAL_SIZE, &prop, 0));
    CU(cuda.mem_export_to_shareable_handle(&offer.fd, physical,
                                           DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ck_assert_int_eq(write(socket, &offer, sizeof offer), sizeof offer);
    while (read(socket, &byte, 1) == 1) {
        char seen = 0;
        if (byte == 'f')
            CU(cuda.mem_free(pointer));
        else
            download(&seen, pointer + SIZE - 1, 1);
        ck_assert_int_eq(write(socket, &seen, 1), 1);
    }
    _exit(0);
}

static struct offer start_owner(const char *visible)
{
    int sockets[2];
    struct offer offer;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    owner = fork();
    ck_assert_int_ge(owner, 0);
    if (owner == 0) {
        close(sockets[0]);
        own(sockets[1], visible);
    }
    close(sockets[1]);
    line = sockets[0];
    ck_assert_int_eq(recv(line, &offer, sizeof offer, MSG_WAITALL), sizeof offer);
    return offer;
}

static char ask_owner(char what)
{
    char answer = 0;
    ck_assert_int_eq(write(line, &what, 1), 1);
    ck_assert_int_eq(read(line, &answer, 1), 1);
    return answer;
}

static void end_owner(void)
{
    int status = -1;
    close(line);
    ck_assert_int_eq(waitpid(owner, &status, 0), owner);
    ck_assert_int_eq(status, 0);
}

static ddpi_cu_result open_handle(ddpi_cu_deviceptr *ret, const struct offer *offer)
{
    return cuda.ipc_open_mem_handle(ret, offer->handle, DDPI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

START_TEST(both_processes_see_one_memory)
{
    struct offer offer = start_owner(NULL);
    start("2");
    char text[SIZE];
    size_t before = 0;
    size_t now = 0;
    size_t total = 0;
    CU(cuda.mem_get_info(&before, &total));
    ddpi_cu_deviceptr pointer = 0;
    ddpi_cu_deviceptr again = 0;
    CU(open_handle(&pointer, &offer));
    CU(open_handle(&again, &offer));
    ck_assert_uint_eq(pointer, again);
    download(text, pointer, SIZE);
    ck_assert_int_eq(text[0], 'o');
    ck_assert_int_eq(text[SIZE - 1], 'o');
    CU_FAILS(ERROR_INVALID_VALUE, cuda.memcpy_dtoh_async(text, pointer + 1, SIZE, NULL));
    upload(pointer + SIZE - 1, "n", 1);
    ck_assert_int_eq(ask_owner('?'), 'n');
    CU(cuda.mem_get_info(&now, &total));
    ck_assert_uint_eq(now, before); /* it is the owner's */

    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_free(pointer));
    CU(cuda.ipc_close_mem_handle(pointer));
    download(text, pointer, SIZE); /* it was opened twice */
    CU(cuda.ipc_close_mem_handle(pointer));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.memcpy_dtoh_async(text, pointer, SIZE, NULL));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.ipc_close_mem_handle(pointer));
    end_owner();
}
END_TEST

START_TEST(memory_that_was_freed_cannot_be_opened)
{
    struct offer offer = start_owner(NULL);
    start("2");
    ddpi_cu_deviceptr pointer = 0;
    ask_owner('f');
    CU_FAILS(ERROR_MAP_FAILED, open_handle(&pointer, &offer));
    memset(&offer, 0, sizeof offer);
    CU_FAILS(ERROR_INVALID_VALUE, open_handle(&pointer, &offer));
    end_owner();
}
END_TEST

START_TEST(the_memory_of_the_dead_stays_open_but_cannot_be_opened)
{
    struct offer offer = start_owner(NULL);
    start("2");
    ddpi_cu_deviceptr pointer = 0;
    char byte = 0;
    CU(open_handle(&pointer, &offer));
    end_owner();
    download(&byte, pointer, 1);
    ck_assert_int_eq(byte, 'o');
    CU(cuda.ipc_close_mem_handle(pointer));
    CU_FAILS(ERROR_MAP_FAILED, open_handle(&pointer, &offer));
}
END_TEST

START_TEST(own_handles_are_refused)
{
    start("1");
    struct offer offer = {0};
    ddpi_cu_deviceptr pointer = allocate(10);
    ddpi_cu_deviceptr opened = 0;
    CU(cuda.ipc_get_mem_handle(&offer.handle, pointer));
    CU_FAILS(ERROR_INVALID_CONTEXT, open_handle(&opened, &offer));
    CU_FAILS(ERROR_INVALID_VALUE,
             cuda.ipc_get_mem_handle(&offer.handle, (uintptr_t)create_word(0)));
}
END_TEST

START_TEST(devices_without_peer_access_do_not_open_each_other)
{
    setenv("DDP_HOST_CUDA_PEERS", "none", 1);
    struct offer offer = start_owner("1");
    start("2");
    ddpi_cu_deviceptr pointer = 0;
    CU_FAILS(ERROR_PEER_ACCESS_UNSUPPORTED, open_handle(&pointer, &offer));
    CU(cuda.ctx_push_current(contexts[1])); /* the owner's device is our second */
    CU(open_handle(&pointer, &offer));
    end_owner();
}
END_TEST

/* A descriptor of the owner's in our own table, as one that it sent over a socket would be. */
static int fetch_fd(const struct offer *offer)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", owner, offer->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

START_TEST(virtual_memory_is_shared_by_descriptor)
{
    struct offer offer = start_owner(NULL);
    start("2");
    int fd = fetch_fd(&offer);
    ddpi_cu_mem_handle handle = 0;
    ddpi_cu_deviceptr pointer = 0;
    char text[4] = "";
    CU(cuda.mem_import_from_shareable_handle(&handle, (void *)(intptr_t)fd,
                                             DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CU(cuda.mem_address_reserve(&pointer, VIRTUAL_SIZE, 0, 0, 0));
    CU(cuda.mem_map(pointer, VIRTUAL_SIZE, 0, handle, 0));
    const struct ddpi_cu_mem_access access = {{DDPI_CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                              DDPI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU(cuda.mem_set_access(pointer, VIRTUAL_SIZE, &access, 1));
    upload(pointer, "abc", 4);
    end_owner();
    download(text, pointer, 4);
    ck_assert_str_eq(text, "abc");
    CU(cuda.mem_release(handle));
    CU(cuda.mem_unmap(pointer, VIRTUAL_SIZE));
    CU(cuda.mem_address_free(pointer, VIRTUAL_SIZE));
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    CU_FAILS(ERROR_INVALID_VALUE,
             cuda.mem_import_from_shareable_handle(&handle, (void *)(intptr_t)null,
                                                   DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(null);
}
END_TEST

START_TEST(a_process_can_be_killed_at_a_call)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        setenv("DDP_HOST_CUDA_FAIL", "cuMemAlloc:2:kill", 1);
        start("1");
        allocate(1);
        allocate(1);
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), SIGKILL);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("host_share");
    TCase *tcase = tcase_create("share");
    ADD_TESTS(tcase, both_processes_see_one_memory, memory_that_was_freed_cannot_be_opened,
              the_memory_of_the_dead_stays_open_but_cannot_be_opened, own_handles_are_refused,
              devices_without_peer_access_do_not_open_each_other,
              virtual_memory_is_shared_by_descriptor, a_process_can_be_killed_at_a_call);
    suite_add_tcase(suite, tcase);
    return suite;
}
