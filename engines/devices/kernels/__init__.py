"""Step times of GPUs from kernels measured on them: grids, one file per GPU, their readers and their export."""
