/*
 * python_lock.h - releases Python's global lock for as long as an object of this class lives, where
 * its thread holds it: PyTorch's bindings do so for wait(), but not for everything that waits here.
 *
 * Python's functions are declared by hand and are weak: this library is compiled without Python's
 * headers, and works in a program without Python.
 */
#ifndef DDPRUN_TORCH_PYTHON_LOCK_H
#define DDPRUN_TORCH_PYTHON_LOCK_H

extern "C" {
int PyGILState_Check(void) __attribute__((weak));
void *PyEval_SaveThread(void) __attribute__((weak));
void PyEval_RestoreThread(void *) __attribute__((weak));
int Py_IsInitialized(void) __attribute__((weak));
}

namespace ddprun
{

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

} // namespace ddprun

#endif
