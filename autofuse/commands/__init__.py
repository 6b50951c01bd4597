"""The commands of `autofuse`: each turns options into one library call and prints its result."""
