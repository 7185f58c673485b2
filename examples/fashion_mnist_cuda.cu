/*
 * fashion_mnist_cuda.cu - fashion_mnist.c on GPUs: gradients are reduced in device memory.
 *
 *     ddprun --nproc-per-node=4 ./fashion_mnist_cuda    processes; they may share a GPU
 *     ./fashion_mnist_cuda --threads=4                  one process, a thread for each worker
 *     ./fashion_mnist_cuda --probe                      check for a GPU: exit status 0, or 69
 *
 * Each worker has two streams. One runs the kernels. As soon as the gradients of a layer are
 * complete, the reducer sums them on the other stream, while the first one computes the gradients
 * of the layer below.
 */
#include "mlp_kernels.cuh"
#include "run.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace
{

/* A worker. The pointers after the events point to memory of its GPU. */
struct worker {
    struct trainer trainer;
    cudaStream_t compute, traffic;
    cudaEvent_t ready; /* recorded on compute: gradients are complete */
    uint8_t *pixels, *labels;
    uint32_t *order;
    struct mlp *model, *velocity;
    struct mlp_sums *sums;
    float *hidden, *slopes;   /* MLP_HIDDEN for each row */
    struct verdict *verdicts; /* one for each row */
};

void must(cudaError_t result, const char *what)
{
    if (result != cudaSuccess)
        die(EXIT_FAILURE, "%s: %s", what, cudaGetErrorString(result));
}

/* ---- devices ---- */

void must_have_gpu(cudaError_t result)
{
    if (result == cudaErrorInsufficientDriver) /* CUDA's text omits a missing driver */
        die(EXIT_UNAVAILABLE, "no GPU can be used here: no NVIDIA driver, or one that is too old; "
                              "fashion_mnist needs none");
    if (result != cudaSuccess)
        die(EXIT_UNAVAILABLE, "no GPU can be used here: %s; fashion_mnist needs none",
            cudaGetErrorString(result));
}

int count_devices()
{
    int count = 0;
    must_have_gpu(cudaGetDeviceCount(&count));
    must_have_gpu(count > 0 ? cudaSuccess : cudaErrorNoDevice);
    return count;
}

template <class... Kernels> void load(Kernels *...kernels)
{
    cudaFuncAttributes attributes;
    (must_have_gpu(cudaFuncGetAttributes(&attributes, kernels)), ...);
}

/* Also loads the kernels, for two reasons. Some may be missing, as nvcc compiles only for certain
 * architectures. Otherwise, the driver would load each at its first launch, for which it may wait
 * until the GPU is idle; during a collective, that would wait for the other workers. */
void choose_device(int device)
{
    must_have_gpu(cudaSetDevice(device));
    load(hidden_forward, class_forward, judge, class_weight_gradient, class_bias_gradient,
         hidden_backward, hidden_gradient, descend);
}

int probe()
{
    const int count = count_devices();
    choose_device(0);
    printf("%d GPU%s can be used\n", count, count == 1 ? "" : "s");
    return EXIT_SUCCESS;
}

/* The number of this worker among the workers of this machine. */
int local_number(const ddp_comm *comm, const struct options *options)
{
    const char *local_rank = getenv("LOCAL_RANK");
    if (options->threads > 0)
        return int(ddp_comm_rank(comm));
    return local_rank == nullptr ? 0 : int(whole_number("LOCAL_RANK", local_rank, 0, 100000));
}

/* ---- memory ---- */

template <class Type> void allocate(Type **ret_memory, size_t count)
{
    must(cudaMalloc(ret_memory, count * sizeof(Type)), "cannot allocate GPU memory");
}

template <class Type> void upload(const worker &worker, Type *to, const Type *from, size_t count)
{
    must(cudaMemcpyAsync(to, from, count * sizeof(Type), cudaMemcpyHostToDevice, worker.compute),
         "cannot copy to the GPU");
}

/* Failures of kernels and collectives are known only after they end; a failed collective does not
 * stop its stream. */
void wait(const worker &worker)
{
    struct ddp_error err;
    must(cudaStreamSynchronize(worker.compute), "the GPU failed");
    trainer_check(&worker.trainer, ddp_comm_check(worker.trainer.comm, &err), &err);
}

size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

void open_worker(worker *worker, ddp_comm *comm, const struct dataset *data,
                 const struct options *options)
{
    *worker = {};
    trainer_init(&worker->trainer, comm, data, size_t(options->batch));
    /* The modulo, as there may be more workers than GPUs. */
    choose_device(local_number(comm, options) % count_devices());
    /* Non-blocking: the streams wait for each other only by events, not for the default stream. */
    must(cudaStreamCreateWithFlags(&worker->compute, cudaStreamNonBlocking), "cannot add a stream");
    must(cudaStreamCreateWithFlags(&worker->traffic, cudaStreamNonBlocking), "cannot add a stream");
    must(cudaEventCreateWithFlags(&worker->ready, cudaEventDisableTiming), "cannot add an event");
    const size_t images = larger(data->train.count, data->test.count);
    const size_t rows = size_t(options->batch) / worker->trainer.workers + 1;
    allocate(&worker->pixels, images * IMAGE_PIXELS);
    allocate(&worker->labels, images);
    allocate(&worker->order, images);
    allocate(&worker->model, 1);
    allocate(&worker->velocity, 1);
    allocate(&worker->sums, 1);
    allocate(&worker->hidden, rows * MLP_HIDDEN);
    allocate(&worker->slopes, rows * MLP_HIDDEN);
    allocate(&worker->verdicts, rows);
    trainer_open_reducer(&worker->trainer, worker->sums, true);
}

void close_worker(worker *worker)
{
    void *const memory[] = {worker->pixels, worker->labels,   worker->order,
                            worker->model,  worker->velocity, worker->sums,
                            worker->hidden, worker->slopes,   worker->verdicts};
    for (void *each : memory)
        must(cudaFree(each), "cannot free GPU memory");
    must(cudaEventDestroy(worker->ready), "cannot destroy an event");
    must(cudaStreamDestroy(worker->compute), "cannot destroy a stream");
    must(cudaStreamDestroy(worker->traffic), "cannot destroy a stream");
    trainer_finish(&worker->trainer);
}

void upload_images(const worker &worker, const struct images &images)
{
    upload(worker, worker.pixels, images.pixels, images.count * IMAGE_PIXELS);
    upload(worker, worker.labels, images.labels, images.count);
}

/* ---- a step ---- */

/* The forward pass of @rows images, and the loss of each. */
void forward(const worker &worker, const uint32_t *order, unsigned rows)
{
    if (rows == 0)
        return; /* more workers than images in the batch */
    hidden_forward<<<rows, MLP_HIDDEN, 0, worker.compute>>>(worker.model, worker.pixels, order,
                                                            worker.hidden);
    class_forward<<<rows, MLP_CLASSES, 0, worker.compute>>>(worker.model, worker.hidden,
                                                            worker.verdicts);
    judge<<<rows, 1, 0, worker.compute>>>(worker.labels, order, worker.verdicts);
    must(cudaGetLastError(), "cannot launch the forward pass");
}

/* The output layer: its gradients, the loss and the number of right answers. */
void backward_classes(const worker &worker, unsigned rows)
{
    class_weight_gradient<<<MLP_CLASSES, MLP_HIDDEN, 0, worker.compute>>>(
        worker.verdicts, worker.hidden, rows, worker.sums);
    class_bias_gradient<<<1, MLP_CLASSES + 1, 0, worker.compute>>>(worker.verdicts, rows,
                                                                   worker.sums);
    must(cudaGetLastError(), "cannot launch the backward pass");
}

void backward_hidden(const worker &worker, const uint32_t *order, unsigned rows)
{
    if (rows > 0)
        hidden_backward<<<rows, MLP_HIDDEN, 0, worker.compute>>>(worker.model, worker.verdicts,
                                                                 worker.hidden, worker.slopes);
    hidden_gradient<<<MLP_INPUTS + 1, MLP_HIDDEN, 0, worker.compute>>>(
        worker.pixels, order, worker.slopes, rows, worker.sums);
    must(cudaGetLastError(), "cannot launch the backward pass");
}

/* Reduce gradients @first to @last over all workers, once the compute stream has completed them.
 * The compute stream continues meanwhile. */
void reduce(const worker &worker, size_t first, size_t last)
{
    const struct trainer &trainer = worker.trainer;
    struct ddp_error err;
    must(cudaEventRecord(worker.ready, worker.compute), "cannot record an event");
    must(cudaStreamWaitEvent(worker.traffic, worker.ready, 0), "cannot wait for an event");
    for (size_t i = first; i <= last; i++)
        trainer_check(&trainer, ddp_reducer_ready(trainer.reducer, i, worker.traffic, &err), &err);
}

/* Copy the loss and the number of right answers to the trainer's sums on the host. */
void fetch_verdict(const worker &worker)
{
    static_assert(offsetof(struct mlp_sums, correct) ==
                      offsetof(struct mlp_sums, loss) + sizeof(double),
                  "copied together");
    must(cudaMemcpyAsync(&worker.trainer.sums->loss, &worker.sums->loss, 2 * sizeof(double),
                         cudaMemcpyDeviceToHost, worker.compute),
         "cannot copy from the GPU");
    wait(worker);
}

void train_step(void *self, size_t step, double rate, double momentum)
{
    const worker &worker = *static_cast<struct worker *>(self);
    const struct trainer &trainer = worker.trainer;
    struct ddp_error err;
    size_t begin, end;
    trainer_part(&trainer, step, &begin, &end);
    const unsigned rows = unsigned(end - begin);
    const uint32_t *const order = worker.order + begin;
    if (step == 0)
        upload(worker, worker.order, trainer.order, trainer.data->train.count);

    trainer_check(&trainer, ddp_reducer_begin(trainer.reducer, &err), &err);
    forward(worker, order, rows);
    backward_classes(worker, rows);
    reduce(worker, VERDICT, CLASS_WEIGHT);
    backward_hidden(worker, order, rows);
    reduce(worker, HIDDEN_BIAS, HIDDEN_WEIGHT);
    trainer_check(&trainer, ddp_reducer_finish(trainer.reducer, &err), &err);
    descend<<<WEIGHT_BLOCKS, WEIGHT_THREADS, 0, worker.compute>>>(
        worker.model, worker.velocity, worker.sums, double(trainer_batch(&trainer, step)),
        float(rate), float(momentum));
    must(cudaGetLastError(), "cannot update the weights");
    fetch_verdict(worker);
}

/* ---- a training run ---- */

/* Rank 0 chooses random weights, and all workers start with them. */
void share_model(const worker &worker, unsigned long seed)
{
    const struct trainer &trainer = worker.trainer;
    struct ddp_error err;
    if (trainer.rank == 0) {
        mlp_init(trainer.model, seed);
        upload(worker, worker.model, trainer.model, 1);
    }
    must(cudaMemsetAsync(worker.velocity, 0, sizeof *worker.velocity, worker.compute),
         "cannot clear GPU memory");
    trainer_check(
        &trainer,
        ddp_broadcast(trainer.comm, worker.model, MLP_FLOATS, DDP_FLOAT32, 0, worker.compute, &err),
        &err);
    wait(worker);
}

/* The accuracy on the test images: each worker classifies a part of them, in batches. */
double measure_accuracy(const worker &worker)
{
    const struct trainer &trainer = worker.trainer;
    const struct images &test = trainer.data->test;
    const size_t end = test.count * (trainer.rank + 1) / trainer.workers;
    const size_t most = trainer.batch / trainer.workers + 1;
    double correct = 0.0;
    upload_images(worker, test);
    uint32_t *order = static_cast<uint32_t *>(malloc(test.count * sizeof *order));
    if (order == nullptr)
        die(EXIT_FAILURE, "out of memory");
    for (size_t i = 0; i < test.count; i++)
        order[i] = uint32_t(i);
    upload(worker, worker.order, order, test.count);
    for (size_t i = test.count * trainer.rank / trainer.workers; i < end; i += most) {
        const unsigned rows = unsigned(end - i < most ? end - i : most);
        forward(worker, worker.order + i, rows);
        class_bias_gradient<<<1, MLP_CLASSES + 1, 0, worker.compute>>>(worker.verdicts, rows,
                                                                       worker.sums);
        fetch_verdict(worker);
        correct += trainer.sums->correct;
    }
    free(order);
    struct ddp_error err;
    trainer_check(
        &trainer,
        ddp_all_reduce(trainer.comm, &correct, &correct, 1, DDP_FLOAT64, DDP_SUM, nullptr, &err),
        &err);
    return correct / double(test.count);
}

void train(ddp_comm *comm, const struct dataset *data, const struct options *options)
{
    worker worker;
    open_worker(&worker, comm, data, options);
    upload_images(worker, data->train);
    share_model(worker, static_cast<unsigned long>(options->seed));
    run_train(&worker.trainer, options, train_step, &worker);
    run_print_accuracy(&worker.trainer, measure_accuracy(worker));
    close_worker(&worker);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--probe") == 0)
        return probe();
    struct options options = options_defaults();
    options_parse(&options, OPTIONS_LOSS_LOG | OPTIONS_THREADS, argc, argv);
    struct dataset data;
    int devices[MOST_THREADS];
    const int count = count_devices();
    for (int i = 0; i < MOST_THREADS; i++)
        devices[i] = i % count;
    dataset_open(&data, options.data, size_t(options.limit));
    if (options.threads > 0)
        run_threads(&data, &options, devices, train);
    else
        train(trainer_join(), &data, &options);
    dataset_close(&data);
    return EXIT_SUCCESS;
}
