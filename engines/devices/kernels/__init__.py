"""Step times of GPUs from kernels that were measured on them: files of grids, how they are read, and how they are made."""
