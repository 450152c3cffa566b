"""A rehearsal from the inside: simulated ranks on one machine, and the referee who sees every call they make.

One process imports torch, forks the ranks and becomes the referee. Ranks talk to it over a Unix socket. Every
collective goes through it with its real values, so it knows at any moment what each rank waits for.
"""
