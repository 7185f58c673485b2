/*
 * python_lock.h - Python's global lock, which a thread must not hold while it waits for something
 * else: PyTorch's bindings release it for wait(), but not for everything that waits here.
 *
 * Python's functions are declared by hand and are weak: this library is compiled without Python's
 * headers, and works in a program without Python.
 */
#ifndef DDPRUN_TORCH_PYTHON_LOCK_H
#define DDPRUN_TORCH_PYTHON_LOCK_H

#include <mutex>

extern "C" {
int PyGILState_Check(void) __attribute__((weak));
void *PyEval_SaveThread(void) __attribute__((weak));
void PyEval_RestoreThread(void *) __attribute__((weak));
int Py_IsInitialized(void) __attribute__((weak));
int Py_IsFinalizing(void) __attribute__((weak));  /* of Python 3.13 */
int _Py_IsFinalizing(void) __attribute__((weak)); /* of older ones */
}

namespace ddprun
{

/* Whether Python ends: then no thread gets the lock but the one that ends it. */
inline bool python_ends()
{
    const auto ends = Py_IsFinalizing != nullptr ? Py_IsFinalizing : _Py_IsFinalizing;
    return ends != nullptr && ends() != 0;
}

/* Releases it for as long as this object lives, if its thread holds it. */
class PythonLockReleased
{
  public:
    PythonLockReleased()
    {
        if (PyGILState_Check != nullptr && Py_IsInitialized != nullptr &&
            PyEval_SaveThread != nullptr && PyEval_RestoreThread != nullptr &&
            Py_IsInitialized() != 0 && PyGILState_Check() != 0)
            state_ = PyEval_SaveThread();
    }
    ~PythonLockReleased()
    {
        if (state_ != nullptr)
            PyEval_RestoreThread(state_);
    }
    PythonLockReleased(const PythonLockReleased &) = delete;
    PythonLockReleased &operator=(const PythonLockReleased &) = delete;

  private:
    void *state_ = nullptr;
};

/* Holds a mutex whose owner may come to need Python's lock: tensors that Python knows take it when
 * they are dropped. So no thread waits for such a mutex with that lock. */
class LockedWithoutPython
{
  public:
    explicit LockedWithoutPython(std::mutex &mutex) : lock_(mutex)
    {
    }

  private:
    PythonLockReleased released_; /* before the mutex is taken, and until it is given back */
    std::lock_guard<std::mutex> lock_;
};

} // namespace ddprun

#endif
