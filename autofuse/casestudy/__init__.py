"""The case study: one simulation written four ways, under rules, search and other compilers."""
