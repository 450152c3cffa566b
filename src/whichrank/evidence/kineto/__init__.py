"""Chrome-format traces, as torch.profiler (Kineto) and others write them, read as a stream into columns."""
