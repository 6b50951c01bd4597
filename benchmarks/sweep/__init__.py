"""Every op and every pass of C kernels over awkward extents, thread counts and accesses."""
