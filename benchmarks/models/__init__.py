"""Whole networks at their real size, with random weights: ours beside PyTorch, TorchInductor,
onnxruntime and OpenVINO."""
