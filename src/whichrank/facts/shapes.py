"""Shapes of words that readers and rules both look for."""

from __future__ import annotations

import re

LAUNCHED = re.compile(
    r"Command '?\[?'?[^'\s]{0,300}?(?:python[\d.]{0,6}|torchrun|deepspeed|accelerate|mpirun|mpiexec)['\s]"
)
"""What a launcher starts; a compiler or a script that a rank starts is the rank's own."""
BOUND = re.compile(r"failed to (?:bind to|listen on) \S{1,255}:(\d{1,5}) \((?:errno|system error)")
"""The port in `failed to bind to [::]:29500 (errno: 98 - …` of torch 1.10 to 2.4; later ones say `port: 29500`."""
