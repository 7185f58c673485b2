/*
 * test_host_memory.c - memory of the host driver: apart from the host's, bounded, accounted for.
 */
#include "fixture.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

START_TEST(device_memory_keeps_what_was_copied_and_starts_as_noise)
{
    start("1");
    char text[4000];
    char back[sizeof text];
    memset(text, 'x', sizeof text);
    ddpi_cu_deviceptr a = allocate(sizeof text);
    ddpi_cu_deviceptr b = allocate(sizeof text);
    download(back, a, sizeof back);
    ck_assert_mem_ne(back, text, sizeof text);
    char zeros[sizeof text] = {0};
    ck_assert_mem_ne(back, zeros, sizeof zeros);
    upload(a, text, sizeof text);
    CU(cuda.memcpy_async(b + 1, a, sizeof text - 1, NULL));
    CU(cuda.memset_d8_async(b, 'x', 1, NULL));
    CU(cuda.stream_synchronize(NULL));
    download(back, b, sizeof back);
    ck_assert_mem_eq(back, text, sizeof text);
    CU(cuda.mem_free(a));
    CU(cuda.mem_free(b));
}
END_TEST

START_TEST(the_host_cannot_touch_device_memory)
{
    start("1");
    volatile char *pointer = (volatile char *)(uintptr_t)allocate(64);
    *pointer = 1; /* the signal that the test expects */
}
END_TEST

START_TEST(copies_stay_within_one_memory)
{
    start("1");
    char plain[128];
    ddpi_cu_deviceptr a = allocate(100);
    ddpi_cu_stream stream = create_stream();
    CU_FAILS(ERROR_INVALID_VALUE, cuda.memcpy_htod_async(a, plain, 101, stream));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.memcpy_dtoh_async(plain, a + 1, 100, stream));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.memcpy_async(a + 100, a, 1, stream));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.memset_d8_async(a + 50, 0, 51, stream));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.memcpy_htod_async((uintptr_t)plain, plain, 1, stream));
    CU(cuda.memcpy_htod_async(a, plain, 0, stream));
    CU(cuda.mem_free(a));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.memcpy_htod_async(a, plain, 1, stream));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_free(a));
    CU(cuda.mem_free(0));
}
END_TEST

START_TEST(addresses_do_not_come_back)
{
    start("1");
    ddpi_cu_deviceptr first = allocate(1 << 20);
    CU(cuda.mem_free(first));
    for (int i = 0; i < 100; i++) {
        ddpi_cu_deviceptr next = allocate(1 << 20);
        ck_assert_uint_ne(next, first);
        CU(cuda.mem_free(next));
    }
}
END_TEST

START_TEST(free_memory_is_as_it_was)
{
    setenv("DDP_HOST_CUDA_MEMORY", "64M", 1);
    start("2");
    size_t before = 0;
    size_t now = 0;
    size_t total = 0;
    CU(cuda.mem_get_info(&before, &total));
    ck_assert_uint_eq(total, 64 << 20);
    ck_assert_uint_eq(before, total);
    ddpi_cu_deviceptr a = allocate(40 << 20);
    CU(cuda.mem_get_info(&now, &total));
    ck_assert_uint_eq(before - now, 40 << 20);
    ddpi_cu_deviceptr b = 0;
    CU_FAILS(ERROR_OUT_OF_MEMORY, cuda.mem_alloc(&b, 25 << 20));
    CU_FAILS(ERROR_OUT_OF_MEMORY, cuda.mem_alloc(&b, SIZE_MAX));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_alloc(&b, 0));
    CU(cuda.ctx_push_current(contexts[1]));
    b = allocate(25 << 20); /* another device has its own */
    CU(cuda.mem_free(b));
    CU(cuda.mem_free(a));
    CU(cuda.ctx_pop_current(NULL));
    CU(cuda.mem_get_info(&now, &total));
    ck_assert_uint_eq(now, before);
}
END_TEST

struct place {
    void *context;
    unsigned type;
    int ordinal;
    unsigned managed;
    unsigned long long buffer_id;
};

static struct place ask(ddpi_cu_deviceptr pointer)
{
    struct place place = {0};
    unsigned attributes[] = {
        DDPI_CU_POINTER_ATTRIBUTE_CONTEXT, DDPI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        DDPI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, DDPI_CU_POINTER_ATTRIBUTE_IS_MANAGED,
        DDPI_CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void *values[] = {&place.context, &place.type, &place.ordinal, &place.managed,
                      &place.buffer_id};
    CU(cuda.pointer_get_attributes(5, attributes, values, pointer));
    return place;
}

START_TEST(pointers_say_what_they_are)
{
    start("2");
    CU(cuda.ctx_push_current(contexts[1]));
    ddpi_cu_deviceptr pointer = allocate(100);
    CU(cuda.ctx_pop_current(NULL));
    struct place device = ask(pointer + 99);
    ck_assert_ptr_eq(device.context, contexts[1]);
    ck_assert_uint_eq(device.type, DDPI_CU_MEMORYTYPE_DEVICE);
    ck_assert_int_eq(device.ordinal, 1);
    ck_assert_uint_eq(device.managed, 0);
    ck_assert_uint_ne(device.buffer_id, 0);
    ck_assert_uint_eq(ask(pointer + 100).type, 0);

    struct place pinned = ask((uintptr_t)create_word(0));
    ck_assert_uint_eq(pinned.type, DDPI_CU_MEMORYTYPE_HOST);
    ck_assert_uint_ne(pinned.buffer_id, device.buffer_id);

    ddpi_cu_result (*alloc_managed)(ddpi_cu_deviceptr *, size_t, unsigned) = NULL;
    void *symbol = dlsym(cuda.library, "cuMemAllocManaged");
    memcpy(&alloc_managed, &symbol, sizeof symbol);
    ddpi_cu_deviceptr managed = 0;
    CU(alloc_managed(&managed, 100, 1));
    ck_assert_uint_eq(ask(managed).managed, 1);
    *(volatile char *)(uintptr_t)managed = 1; /* both sides reach it */

    /* What the driver does not know is not an error, but nothing. */
    int on_stack = 0;
    ck_assert_uint_eq(ask((uintptr_t)&on_stack).type, 0);
    ck_assert_ptr_null(ask((uintptr_t)&on_stack).context);
    CU(cuda.mem_free(pointer));
    ck_assert_uint_eq(ask(pointer).type, 0);
}
END_TEST

START_TEST(ranges_are_those_of_the_allocation)
{
    start("1");
    ddpi_cu_deviceptr pointer = allocate(1000);
    ddpi_cu_deviceptr base = 0;
    size_t size = 0;
    CU(cuda.mem_get_address_range(&base, &size, pointer + 999));
    ck_assert_uint_eq(base, pointer);
    ck_assert_uint_eq(size, 1000);
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_get_address_range(&base, &size, pointer + 1000));
}
END_TEST

START_TEST(pinned_memory_has_one_address)
{
    start("1");
    _Atomic uint32_t *word = create_word(5);
    ddpi_cu_deviceptr pointer = 0;
    CU(cuda.mem_host_get_device_pointer(&pointer, (void *)word, 0));
    ck_assert_uint_eq(pointer, (uintptr_t)word);
    int plain = 0;
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_host_get_device_pointer(&pointer, &plain, 0));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_free((uintptr_t)word));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_free_host(&plain));
    CU(cuda.mem_free_host((void *)word));
}
END_TEST

static ddpi_cu_mem_handle create_physical(size_t size, int device)
{
    const struct ddpi_cu_mem_prop prop = {.type = DDPI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .requested_handle_types =
                                              DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          .location = {DDPI_CU_MEM_LOCATION_TYPE_DEVICE, device}};
    ddpi_cu_mem_handle handle = 0;
    CU(cuda.mem_create(&handle, size, &prop, 0));
    return handle;
}

START_TEST(virtual_memory_is_addresses_memory_and_access)
{
    start("1");
    size_t before = 0;
    size_t now = 0;
    size_t total = 0;
    CU(cuda.mem_get_info(&before, &total));
    const size_t size = 4 << 20;
    ddpi_cu_mem_handle handle = create_physical(size, 0);
    ddpi_cu_deviceptr pointer = 0;
    char back[4] = "";
    CU(cuda.mem_address_reserve(&pointer, size, 0, 0, 0));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.memcpy_htod_async(pointer, "abc", 4, NULL));
    CU(cuda.mem_map(pointer, size, 0, handle, 0));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_map(pointer, size, 0, handle, 0));
    const struct ddpi_cu_mem_access access = {{DDPI_CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                              DDPI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CU(cuda.mem_set_access(pointer, size, &access, 1));
    upload(pointer + size - 4, "abc", 4);
    download(back, pointer + size - 4, 4);
    ck_assert_str_eq(back, "abc");

    struct ddpi_cu_ipc_handle ipc;
    CU_FAILS(ERROR_INVALID_VALUE, cuda.ipc_get_mem_handle(&ipc, pointer));
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_free(pointer));
    ddpi_cu_mem_handle again = 0;
    CU(cuda.mem_retain_allocation_handle(&again, (void *)(uintptr_t)pointer));
    ck_assert_uint_eq(again, handle);
    CU(cuda.mem_release(again));
    CU(cuda.mem_release(handle)); /* the mapping keeps it */
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_release(handle));
    CU(cuda.mem_get_info(&now, &total));
    ck_assert_uint_eq(before - now, size);
    CU_FAILS(ERROR_INVALID_VALUE, cuda.mem_address_free(pointer, size));
    CU(cuda.mem_unmap(pointer, size));
    CU(cuda.mem_address_free(pointer, size));
    CU(cuda.mem_get_info(&now, &total));
    ck_assert_uint_eq(now, before);
}
END_TEST

START_TEST(calls_need_a_current_context)
{
    start("1");
    ddpi_cu_context current = NULL;
    ddpi_cu_deviceptr pointer = 0;
    int device = -1;
    CU(cuda.ctx_get_device(&device));
    ck_assert_int_eq(device, 0);
    CU(cuda.ctx_pop_current(&current));
    ck_assert_ptr_eq(current, contexts[0]);
    CU(cuda.ctx_get_current(&current));
    ck_assert_ptr_null(current);
    CU_FAILS(ERROR_INVALID_CONTEXT, cuda.mem_alloc(&pointer, 1));
    CU_FAILS(ERROR_INVALID_CONTEXT, cuda.ctx_pop_current(NULL));
    CU(cuda.ctx_push_current(contexts[0]));
    CU(cuda.device_primary_ctx_release(0));
    CU_FAILS(ERROR_CONTEXT_IS_DESTROYED, cuda.mem_alloc(&pointer, 1));
    CU_FAILS(ERROR_INVALID_CONTEXT, cuda.device_primary_ctx_release(0));
    CU_FAILS(ERROR_INVALID_DEVICE, cuda.device_primary_ctx_release(1));
}
END_TEST

START_TEST(a_context_takes_its_memory_with_it)
{
    start("1");
    size_t before = 0;
    size_t now = 0;
    size_t total = 0;
    CU(cuda.mem_get_info(&before, &total));
    allocate(1 << 20);
    create_stream();
    _Atomic uint32_t *word = create_word(0);
    gate(create_stream(), word, 1);
    CU(cuda.device_primary_ctx_release(0));
    CU(cuda.device_primary_ctx_retain(&contexts[0], 0));
    CU(cuda.mem_get_info(&now, &total));
    ck_assert_uint_eq(now, before);
}
END_TEST

START_TEST(the_nth_call_fails)
{
    setenv("DDP_HOST_CUDA_FAIL", "cuMemAlloc:2:2,cuStreamCreate:1:999", 1);
    start("1");
    ddpi_cu_deviceptr pointer = 0;
    ddpi_cu_stream stream = NULL;
    CU(cuda.mem_alloc(&pointer, 1));
    CU_FAILS(ERROR_OUT_OF_MEMORY, cuda.mem_alloc(&pointer, 1));
    CU(cuda.mem_alloc(&pointer, 1));
    CU_FAILS(ERROR_UNKNOWN, cuda.stream_create(&stream, 0));
    CU(cuda.stream_create(&stream, 0));
}
END_TEST

START_TEST(devices_are_those_that_are_visible)
{
    setenv("CUDA_VISIBLE_DEVICES", "3,1", 1);
    setenv("DDP_HOST_CUDA_PEERS", "1-3", 1);
    start("4");
    int count = 0;
    int can = 0;
    struct ddpi_cu_uuid uuids[2];
    char id[16] = "";
    char name[32] = "";
    CU(cuda.device_get_count(&count));
    ck_assert_int_eq(count, 2);
    CU(cuda.device_get_uuid(&uuids[0], 0));
    CU(cuda.device_get_uuid(&uuids[1], 1));
    ck_assert_mem_ne(&uuids[0], &uuids[1], sizeof uuids[0]);
    CU(cuda.device_get_pci_bus_id(id, sizeof id, 0));
    ck_assert_str_eq(id, "0000:04:00.0");
    CU(cuda.device_get_name(name, sizeof name, 0));
    ck_assert_uint_gt(strlen(name), 0);
    CU(cuda.device_can_access_peer(&can, 0, 1));
    ck_assert_int_eq(can, 1);
    CU(cuda.device_can_access_peer(&can, 0, 0));
    ck_assert_int_eq(can, 0);
    CU_FAILS(ERROR_INVALID_DEVICE, cuda.device_get(&count, 2));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("host_memory");
    TCase *tcase = tcase_create("memory");
    tcase_add_test(tcase, device_memory_keeps_what_was_copied_and_starts_as_noise);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test_raise_signal(tcase, the_host_cannot_touch_device_memory, 11);
#else
    (void)the_host_cannot_touch_device_memory; /* the sanitizers make another end of it */
#endif
    ADD_TESTS(tcase, copies_stay_within_one_memory, addresses_do_not_come_back,
              free_memory_is_as_it_was, pointers_say_what_they_are,
              ranges_are_those_of_the_allocation, pinned_memory_has_one_address,
              virtual_memory_is_addresses_memory_and_access, calls_need_a_current_context,
              a_context_takes_its_memory_with_it, the_nth_call_fails,
              devices_are_those_that_are_visible);
    suite_add_tcase(suite, tcase);
    return suite;
}
