"""Other systems that run the same workloads: how they are asked, checked and timed in turns."""
