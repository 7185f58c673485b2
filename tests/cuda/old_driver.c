/*
 * old_driver.c - a libcuda.so.1 of CUDA 11.8, which cannot be asked for functions by version.
 */
int cuDriverGetVersion(int *ret_version);

__attribute__((visibility("default"))) int cuDriverGetVersion(int *ret_version)
{
    *ret_version = 11080;
    return 0;
}
