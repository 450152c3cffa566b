"""Rules of preflight about one host: the measurement of one probe in, one check out.

Beside `CODE` and `CAUSE` such a rule has `CHECK` (its name in the report), `PROBE` (what it judges), `FIX`, and
`judge(values, host, launch)`, which returns a `Check`, or None where there is nothing to check. It is asked only
where its probe measured something.
"""

JUDGES = "host"
