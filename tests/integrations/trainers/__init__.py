"""Small real jobs of each trainer: two ranks, Gloo; argv[1] says how rank 1 goes wrong."""
