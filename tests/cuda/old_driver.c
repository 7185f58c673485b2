/*
 * old_driver.c - a libcuda.so.1 of CUDA 11.8, which cannot be asked for functions by version.
 */
int cuDriverGetVersion(int *ret_version);
int cuCtxGetCurrent(void **ret_context);

__attribute__((visibility("default"))) int cuDriverGetVersion(int *ret_version)
{
    *ret_version = 11080;
    return 0;
}

/* A program has started it. */
__attribute__((visibility("default"))) int cuCtxGetCurrent(void **ret_context)
{
    static int context;
    *ret_context = &context;
    return 0;
}
