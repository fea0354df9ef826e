"""Step times of GPUs from kernels measured on them: files of grids, how they are read, and how they are made."""
