"""Chaos: jobs of stand-in ranks while terminals, supervisors, agents, ranks and links go, then the truth is asked for.

    python -m tests.chaos --minutes 20 --seed 7             this machine, and as root real SSH hosts
    python -m tests.chaos --seed 7 --round 31 --site ssh    one round again

A round is a story (pure, from seed and number), told on a site, and judged: every record is true, every checkpoint
loads, and no process, lock, namespace or half-written file is left.
"""
