"""What many graphs, devices and workers cost a shared tuning database: measured, then simulated."""
