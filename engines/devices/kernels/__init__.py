"""Step times of GPUs from kernels measured on them: grids, one file a GPU, how they are read, and how they are made."""
