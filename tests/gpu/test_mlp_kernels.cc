/*
 * test_mlp_kernels.cc - the kernels of the training example, compiled for the host and run one
 * thread after the other: that they come to the gradients and the weights of mlp.c.
 */
#include "cuda_words.h"

#include "mlp_kernels.cuh"

extern "C" {
#include "check_main.h"
}

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace
{

constexpr unsigned ROWS = 37, STEPS = 5;
constexpr double TOLERANCE = 1e-4; /* of the largest of a kind */
constexpr float RATE = 0.1F, MOMENTUM = 0.9F;

template <class... Parameters, class... Arguments>
void run(unsigned blocks, unsigned threads, void (*kernel)(Parameters...), Arguments... arguments)
{
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
            kernel(arguments...);
}

/* One of two that learn the same: by kernels, and by mlp.c. */
struct learner {
    mlp model, velocity;
    mlp_sums sums;
};

struct lesson {
    images pictures;
    std::vector<uint32_t> order;
    learner device, host;
    float hidden[ROWS * MLP_HIDDEN], slopes[ROWS * MLP_HIDDEN];
    verdict verdicts[ROWS];

    lesson() : order(STEPS * ROWS)
    {
        ck_assert(images_make_up(7, STEPS * ROWS, &pictures));
        for (uint32_t i = 0; i < order.size(); i++)
            order[i] = uint32_t(order.size()) - 1 - i;
        mlp_init(&device.model, 3);
        memset(&device.velocity, 0, sizeof device.velocity);
        host = device;
        memset(&device.sums, 0x5a, sizeof device.sums); /* kernels set, and do not add */
    }

    ~lesson()
    {
        images_free(&pictures);
    }

    void by_kernels(const uint32_t *rows)
    {
        mlp_sums *const sums = &device.sums;
        run(ROWS, MLP_HIDDEN, hidden_forward, &device.model, pictures.pixels, rows, hidden);
        run(ROWS, MLP_CLASSES, class_forward, &device.model, hidden, verdicts);
        run(ROWS, 1, judge, pictures.labels, rows, verdicts);
        run(MLP_CLASSES, MLP_HIDDEN, class_weight_gradient, verdicts, hidden, ROWS, sums);
        run(1, MLP_CLASSES + 1, class_bias_gradient, verdicts, ROWS, sums);
        run(ROWS, MLP_HIDDEN, hidden_backward, &device.model, verdicts, hidden, slopes);
        run(MLP_INPUTS + 1, MLP_HIDDEN, hidden_gradient, pictures.pixels, rows, slopes, ROWS, sums);
        run(WEIGHT_BLOCKS, WEIGHT_THREADS, descend, &device.model, &device.velocity, sums,
            double(ROWS), RATE, MOMENTUM);
    }

    void by_host(const uint32_t *rows)
    {
        memset(&host.sums, 0, sizeof host.sums);
        for (unsigned i = 0; i < ROWS; i++)
            mlp_add_image(&host.model, image_of(pictures.pixels, rows[i]), pictures.labels[rows[i]],
                          &host.sums);
        mlp_step(&host.model, &host.velocity, &host.sums, ROWS, RATE, MOMENTUM);
    }
};

template <class Number>
void check_close(const char *what, const Number *got, const Number *expected, size_t count)
{
    double largest = 0.0, worst = 0.0;
    for (size_t i = 0; i < count; i++) {
        largest = std::max(largest, std::fabs(double(expected[i])));
        worst = std::max(worst, std::fabs(double(got[i] - expected[i])));
        ck_assert(!std::isnan(double(got[i])));
    }
    ck_assert_msg(largest > 0.0 && worst <= TOLERANCE * largest, "%s: %g of %g", what, worst,
                  largest);
}

} // namespace

START_TEST(gradients_and_weights_of_the_host)
{
    const auto lessons = std::make_unique<lesson>();
    const mlp_sums &got = lessons->device.sums, &expected = lessons->host.sums;
    for (unsigned step = 0; step < STEPS; step++) {
        lessons->by_kernels(&lessons->order[step * ROWS]);
        lessons->by_host(&lessons->order[step * ROWS]);
#define CHECK_CLOSE(member, count) \
    check_close(#member, &got.gradient.member, &expected.gradient.member, count)
        CHECK_CLOSE(hidden_weight[0][0], size_t(MLP_INPUTS) * MLP_HIDDEN);
        CHECK_CLOSE(hidden_bias[0], MLP_HIDDEN);
        CHECK_CLOSE(class_weight[0][0], size_t(MLP_CLASSES) * MLP_HIDDEN);
        CHECK_CLOSE(class_bias[0], MLP_CLASSES);
#undef CHECK_CLOSE
        check_close("loss", &got.loss, &expected.loss, 1);
        ck_assert_double_eq(got.correct, expected.correct);
        check_close("weights", &lessons->device.model.hidden_weight[0][0],
                    &lessons->host.model.hidden_weight[0][0], MLP_FLOATS);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("mlp_kernels");
    TCase *tcase = tcase_create("on the host");
    tcase_add_test(tcase, gradients_and_weights_of_the_host);
    suite_add_tcase(suite, tcase);
    return suite;
}
