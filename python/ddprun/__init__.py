"""ddprun for Python. Its parts are imported by themselves: ddprun.torch is the back end of torch.distributed."""
