"""Who is who: processes, hosts, GPUs, ranks, groups, coordinates."""
