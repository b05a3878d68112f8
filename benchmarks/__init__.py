"""Questions about speed, answered by running Headwater, its peers and the raw limit side by side in one run.

    python -m benchmarks queues --rounds 3

`queues.py` lists the questions as data, `workloads.py` is the work that is timed, `peers/` drives each side,
`measure.py` gives every single measure a process of its own, `goals.py` judges and `report.py` writes it down.
A further suite is one more module next to `queues.py`, named in `suite.py`.
"""
