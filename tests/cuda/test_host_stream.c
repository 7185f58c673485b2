/*
 * test_host_stream.c - streams of the host driver: they run beside the program and each other, and
 * in the orders that the real driver promises, no other.
 */
#include "fixture.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static uint32_t load(const _Atomic uint32_t *word)
{
    return *word;
}

static void write_word(ddpi_cu_stream stream, const _Atomic uint32_t *word, uint32_t value)
{
    CU(cuda.stream_write_value32(stream, (uintptr_t)word, value, 0));
}

static void pause_ms(long ms)
{
    const struct timespec pause = {0, ms * 1000000};
    nanosleep(&pause, NULL);
}

static void await_word(const _Atomic uint32_t *word, uint32_t value)
{
    while (load(word) != value)
        pause_ms(1);
}

START_TEST(work_runs_beside_the_program_and_in_order)
{
    start("1");
    ddpi_cu_stream stream = create_stream();
    _Atomic uint32_t *open = create_word(0);
    _Atomic uint32_t *seen = create_word(0);
    gate(stream, open, 1);
    for (uint32_t i = 1; i <= 100; i++)
        write_word(stream, seen, i);
    CU_FAILS(ERROR_NOT_READY, cuda.stream_query(stream));
    ck_assert_uint_eq(load(seen), 0);
    *open = 1;
    CU(cuda.stream_synchronize(stream));
    ck_assert_uint_eq(load(seen), 100);
    CU(cuda.stream_query(stream));
}
END_TEST

/* "At least" is meant around the end of the numbers too. */
START_TEST(waits_compare_around_the_wrap)
{
    start("1");
    static const struct {
        uint32_t there, wanted;
        bool passes;
    } cases[] = {{5, 5, true},          {6, 5, true},           {4, 5, false},
                 {0, UINT32_MAX, true}, {UINT32_MAX, 0, false}, {UINT32_MAX - 1, UINT32_MAX, false},
                 {0x7fffffff, 0, true}, {0x80000000, 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ddpi_cu_stream stream = create_stream();
        _Atomic uint32_t *word = create_word(cases[i].there);
        gate(stream, word, cases[i].wanted);
        if (!cases[i].passes) {
            CU_FAILS(ERROR_NOT_READY, cuda.stream_query(stream));
            *word = cases[i].wanted;
        }
        CU(cuda.stream_synchronize(stream));
    }
    _Atomic uint32_t *word = create_word(0);
    CU_FAILS(ERROR_INVALID_VALUE, cuda.stream_wait_value32(NULL, (uintptr_t)word + 2, 0, 0));
    uint32_t plain = 0;
    CU_FAILS(ERROR_INVALID_VALUE, cuda.stream_wait_value32(NULL, (uintptr_t)&plain, 0, 0));
}
END_TEST

START_TEST(streams_do_not_wait_for_each_other)
{
    start("1");
    ddpi_cu_stream held = create_stream();
    ddpi_cu_stream free_stream = create_stream();
    _Atomic uint32_t *open = create_word(0);
    _Atomic uint32_t *seen = create_word(0);
    gate(held, open, 1);
    write_word(free_stream, seen, 1);
    CU(cuda.stream_synchronize(free_stream));
    ck_assert_uint_eq(load(seen), 1);
    CU_FAILS(ERROR_NOT_READY, cuda.stream_query(held));
    *open = 1;
    CU(cuda.stream_synchronize(held));
}
END_TEST

START_TEST(the_default_stream_waits_for_the_others_and_they_for_it)
{
    start("1");
    ddpi_cu_stream blocking = NULL;
    CU(cuda.stream_create(&blocking, DDPI_CU_STREAM_DEFAULT));
    ddpi_cu_stream apart = create_stream();
    _Atomic uint32_t *open = create_word(0);
    _Atomic uint32_t *seen = create_word(0);
    _Atomic uint32_t *other = create_word(0);
    gate(blocking, open, 1);
    write_word(NULL, seen, 1); /* after the gate */
    write_word(apart, other, 1);
    CU(cuda.stream_synchronize(apart));
    ck_assert_uint_eq(load(other), 1);
    ck_assert_uint_eq(load(seen), 0);
    CU_FAILS(ERROR_NOT_READY, cuda.stream_query(NULL));
    *open = 1;
    CU(cuda.stream_synchronize(NULL));
    ck_assert_uint_eq(load(seen), 1);

    gate(NULL, open, 2);
    write_word(blocking, seen, 2); /* after the default stream's */
    CU_FAILS(ERROR_NOT_READY, cuda.stream_query(blocking));
    write_word(apart, other, 2);
    CU(cuda.stream_synchronize(apart));
    ck_assert_uint_eq(load(seen), 1);
    *open = 2;
    CU(cuda.stream_synchronize(blocking));
    ck_assert_uint_eq(load(seen), 2);
}
END_TEST

START_TEST(a_destroyed_stream_does_its_work_first)
{
    start("1");
    ddpi_cu_stream stream = create_stream();
    _Atomic uint32_t *open = create_word(0);
    _Atomic uint32_t *seen = create_word(0);
    gate(stream, open, 1);
    write_word(stream, seen, 1);
    CU(cuda.stream_destroy(stream));
    CU_FAILS(ERROR_INVALID_HANDLE, cuda.stream_query(stream));
    CU_FAILS(ERROR_INVALID_HANDLE, cuda.stream_destroy(stream));
    ck_assert_uint_eq(load(seen), 0);
    *open = 1;
    await_word(seen, 1);
}
END_TEST

struct freeing {
    ddpi_cu_deviceptr pointer;
    _Atomic uint32_t started;
    _Atomic uint32_t done;
};

static void *free_in_thread(void *arg)
{
    struct freeing *freeing = arg;
    CU(cuda.ctx_push_current(contexts[0]));
    freeing->started = 1;
    CU(cuda.mem_free(freeing->pointer));
    freeing->done = 1;
    return NULL;
}

START_TEST(freeing_memory_waits_for_all_work_of_the_device)
{
    start("1");
    ddpi_cu_stream stream = create_stream();
    _Atomic uint32_t *open = create_word(0);
    struct freeing freeing = {.pointer = allocate(10)};
    pthread_t thread;
    gate(stream, open, 1);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_in_thread, &freeing), 0);
    await_word(&freeing.started, 1);
    pause_ms(20); /* time to do it wrong; it passes either way if the thread is late */
    ck_assert_uint_eq(load(&freeing.done), 0);
    *open = 1;
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(load(&freeing.done), 1);
}
END_TEST

START_TEST(memory_that_only_the_host_knows_is_copied_before_the_call_ends)
{
    setenv("DDP_HOST_CUDA_DELAY_US", "20000", 1);
    start("1");
    char text[] = "first";
    char back[sizeof text] = "";
    ddpi_cu_deviceptr pointer = allocate(sizeof text);
    ddpi_cu_stream stream = create_stream();
    CU(cuda.memcpy_htod_async(pointer, text, sizeof text, stream));
    memset(text, 'x', sizeof text);
    CU(cuda.memcpy_dtoh_async(back, pointer, sizeof back, stream));
    ck_assert_str_eq(back, "first");
}
END_TEST

START_TEST(pinned_memory_is_copied_when_its_turn_comes)
{
    start("1");
    ddpi_cu_stream stream = create_stream();
    _Atomic uint32_t *open = create_word(0);
    _Atomic uint32_t *source = create_word(1);
    ddpi_cu_deviceptr pointer = allocate(4);
    uint32_t back = 0;
    gate(stream, open, 1);
    CU(cuda.memcpy_htod_async(pointer, (const void *)source, 4, stream));
    *source = 2;
    *open = 1;
    CU(cuda.stream_synchronize(stream));
    download(&back, pointer, 4);
    ck_assert_uint_eq(back, 2);
}
END_TEST

START_TEST(streams_know_their_context)
{
    start("2");
    ddpi_cu_context context = NULL;
    CU(cuda.ctx_push_current(contexts[1]));
    ddpi_cu_stream stream = create_stream();
    CU(cuda.ctx_pop_current(NULL));
    CU(cuda.stream_get_ctx(stream, &context));
    ck_assert_ptr_eq(context, contexts[1]);
    CU(cuda.stream_get_ctx(NULL, &context));
    ck_assert_ptr_eq(context, contexts[0]);
}
END_TEST

START_TEST(a_capturing_stream_says_so)
{
    start("1");
    ddpi_cu_stream stream = create_stream();
    ddpi_cu_result (*begin)(ddpi_cu_stream, unsigned) = NULL;
    ddpi_cu_result (*end)(ddpi_cu_stream, void **) = NULL;
    void *symbol = dlsym(cuda.library, "cuStreamBeginCapture_v2");
    memcpy(&begin, &symbol, sizeof symbol);
    symbol = dlsym(cuda.library, "cuStreamEndCapture");
    memcpy(&end, &symbol, sizeof symbol);
    unsigned status = 99;
    void *graph = NULL;
    ddpi_cu_deviceptr word = (uintptr_t)create_word(0);
    CU(cuda.stream_is_capturing(stream, &status));
    ck_assert_uint_eq(status, DDPI_CU_STREAM_CAPTURE_STATUS_NONE);
    CU(begin(stream, 0));
    CU(cuda.stream_is_capturing(stream, &status));
    ck_assert_uint_eq(status, DDPI_CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CU_FAILS(ERROR_STREAM_CAPTURE_UNSUPPORTED, cuda.stream_write_value32(stream, word, 1, 0));
    CU_FAILS(ERROR_STREAM_CAPTURE_UNSUPPORTED, cuda.stream_synchronize(NULL));
    unsigned mode = DDPI_CU_STREAM_CAPTURE_MODE_RELAXED;
    CU(cuda.thread_exchange_stream_capture_mode(&mode));
    CU(cuda.stream_synchronize(NULL));
    CU(cuda.thread_exchange_stream_capture_mode(&mode));
    CU_FAILS(ERROR_STREAM_CAPTURE_UNSUPPORTED, cuda.stream_synchronize(NULL));
    CU(end(stream, &graph));
    CU(cuda.stream_is_capturing(stream, &status));
    ck_assert_uint_eq(status, DDPI_CU_STREAM_CAPTURE_STATUS_NONE);
}
END_TEST

struct sender {
    pthread_t thread;
    ddpi_cu_stream stream;
    const _Atomic uint32_t *word;
};

static void *send_many(void *arg)
{
    const struct sender *sender = arg;
    CU(cuda.ctx_push_current(contexts[0]));
    for (uint32_t i = 1; i <= 500; i++)
        write_word(sender->stream, sender->word, i);
    CU(cuda.stream_synchronize(sender->stream));
    return NULL;
}

START_TEST(several_threads_use_it_at_once)
{
    start("1");
    struct sender senders[4];
    for (int i = 0; i < 4; i++) {
        senders[i].stream = create_stream();
        senders[i].word = create_word(0);
        ck_assert_int_eq(pthread_create(&senders[i].thread, NULL, send_many, &senders[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_join(senders[i].thread, NULL), 0);
        ck_assert_uint_eq(load(senders[i].word), 500);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("host_stream");
    TCase *tcase = tcase_create("streams");
    ADD_TESTS(
        tcase, work_runs_beside_the_program_and_in_order, waits_compare_around_the_wrap,
        streams_do_not_wait_for_each_other, the_default_stream_waits_for_the_others_and_they_for_it,
        a_destroyed_stream_does_its_work_first, freeing_memory_waits_for_all_work_of_the_device,
        memory_that_only_the_host_knows_is_copied_before_the_call_ends,
        pinned_memory_is_copied_when_its_turn_comes, streams_know_their_context,
        a_capturing_stream_says_so, several_threads_use_it_at_once);
    suite_add_tcase(suite, tcase);
    return suite;
}
