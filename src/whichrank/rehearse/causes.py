"""The codes of rehearse's findings, one for each cause."""

from __future__ import annotations

CODES = {
    "conditional-collective": "REH101",
    "rank0-only-collective": "REH102",
    "uneven-inputs": "REH103",
    "collective-order": "REH104",
    "process-group-order": "REH105",
    "p2p-deadlock": "REH106",
    "p2p-unmatched": "REH107",
    "size-mismatch": "REH108",
    "dtype-mismatch": "REH109",
    "root-mismatch": "REH110",
    "reduce-op-mismatch": "REH111",
    "collective-desync": "REH112",
    "teardown-hang": "REH113",
    "missing-rank-at-init": "REH114",
    "world-size-mismatch": "REH115",
    "rank-exception": "REH116",
    "rank-native-crash": "REH117",
    "unused-parameters": "REH118",
    "invalid-collective-call": "REH119",
    "replica-divergence": "REH120",
    "rank-stuck-in-user-code": "REH121",
    "rank-stuck-in-data-loading": "REH122",
    "rank-stuck-in-checkpoint": "REH123",
    "rank-stuck-in-evaluation": "REH124",
    "rank-stuck-in-preprocessing": "REH125",
}
