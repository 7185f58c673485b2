/*
 * test_reduce_check.c - which type has which reduction, and the sentences for those that it has
 * not.
 */
#include "check_main.h"
#include "loops.h"
#include "reduce_check.h"

#include <string.h>

static void check_refusal(ddp_dtype dtype, ddp_reduce_op op, const char *sentence)
{
    struct ddp_error err = {0};
    ck_assert_int_eq(ddpi_reduce_check(dtype, op, &err), DDP_E_INVALID);
    ck_assert_str_eq(err.msg, sentence);
}

START_TEST(a_refusal_names_type_and_reduction)
{
    check_refusal(DDP_COMPLEX64, DDP_MAX,
                  "max of complex64: complex numbers have no order; reduce their absolute values "
                  "instead");
    check_refusal(DDP_BYTE, DDP_SUM,
                  "sum of byte: bytes have no value; pass the buffer as uint8, or as the type that "
                  "it holds");
    check_refusal(DDP_BFLOAT16, DDP_BIT_XOR,
                  "bit_xor of bfloat16: bitwise reductions are of integers; pass the buffer as a "
                  "type of those");
    check_refusal(DDP_UINT8, DDP_PREMUL_SUM,
                  "premul_sum of uint8: a product with a factor is no integer; use sum or average, "
                  "or a float type");
    check_refusal(DDP_BOOL, DDP_AVERAGE,
                  "average of bool: bools are not numbers; sum (or) and product (and) are defined "
                  "for them");
    check_refusal((ddp_dtype)99, DDP_SUM, "99 is not an element type");
    check_refusal((ddp_dtype)-1, DDP_SUM, "-1 is not an element type");
    check_refusal(DDP_FLOAT32, (ddp_reduce_op)DDPI_REDUCE_OPS, "10 is not a reduction");
}
END_TEST

/* A row for each type: the reductions in the order of their values. */
static const char *const rows[DDPI_DTYPES] = {
    [DDP_FLOAT32] = "yyyyynnnyy",     [DDP_FLOAT64] = "yyyyynnnyy",
    [DDP_FLOAT16] = "yyyyynnnyy",     [DDP_BFLOAT16] = "yyyyynnnyy",
    [DDP_INT32] = "yyyyyyyynn",       [DDP_INT64] = "yyyyyyyynn",
    [DDP_UINT8] = "yyyyyyyynn",       [DDP_INT8] = "yyyyyyyynn",
    [DDP_INT16] = "yyyyyyyynn",       [DDP_UINT16] = "yyyyyyyynn",
    [DDP_UINT32] = "yyyyyyyynn",      [DDP_UINT64] = "yyyyyyyynn",
    [DDP_BOOL] = "ynyyyyyynn",        [DDP_FLOAT8_E4M3] = "yyyyynnnyy",
    [DDP_FLOAT8_E5M2] = "yyyyynnnyy", [DDP_COMPLEX64] = "yynnynnnyy",
    [DDP_COMPLEX128] = "yynnynnnyy",  [DDP_BYTE] = "nnnnnyyynn",
};

START_TEST(each_allowed_pair_has_its_loops)
{
    ddp_dtype dtype = (ddp_dtype)_i;
    for (int i = 0; i < DDPI_REDUCE_OPS; i++) {
        ddp_reduce_op op = (ddp_reduce_op)i;
        bool allowed = ddpi_reduce_check(dtype, op, NULL) == DDP_OK;
        ck_assert_int_eq(allowed, rows[dtype][i] == 'y');
        bool scales = op == DDP_PREMUL_SUM || op == DDP_AVERAGE_BEFORE;
        const struct ddpi_loops *loops;
        for (size_t variant = 0; (loops = ddpi_loops_variant(variant)) != NULL; variant++) {
            ck_assert_int_eq(loops->pair[op][dtype] != NULL, allowed);
            if (op == DDP_AVERAGE)
                ck_assert_int_eq(loops->divide[dtype] != NULL, allowed);
            if (scales)
                ck_assert_int_eq(loops->scale[dtype] != NULL, allowed);
        }
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reduce_check");
    TCase *tcase = tcase_create("table");
    tcase_add_test(tcase, a_refusal_names_type_and_reduction);
    tcase_add_loop_test(tcase, each_allowed_pair_has_its_loops, 0, DDPI_DTYPES);
    suite_add_tcase(suite, tcase);
    return suite;
}
