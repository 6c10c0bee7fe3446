"""A few rounds of chaos; `python -m tests.chaos --minutes 20` tells many."""

from __future__ import annotations

import pytest

from tests.chaos.rounds import tell
from tests.chaos.sites import SITES, Site
from tests.chaos.story import FOR_SITE, Act, Blow, story

SEED = 20


def test_a_seed_tells_the_same_story_again_and_others_tell_others() -> None:
    assert story(1, 2, "local", 3) == story(1, 2, "local", 3) != story(1, 3, "local", 3)


def test_stories_use_every_kind_of_blow() -> None:
    for site, kinds in FOR_SITE.items():
        acts = [act for number in range(60) for act in story(SEED, number, site, 3)]
        assert {blow.what for act in acts for blow in act.blows} == set(kinds)
        assert all(blow.rank < act.nodes * act.nproc for act in acts for blow in act.blows)


def acts(*blows: Blow) -> list[Act]:
    """One job of two nodes for each blow, long enough to be hit."""
    return [Act(f"c-{blow.what}", 2, 1, 120, 0, False, None, [blow]) for blow in blows]


@pytest.mark.timeout(240)
def test_what_befalls_jobs_of_this_machine_is_told_truly() -> None:
    """Terminal, supervisor, agent and rank, each on a job of its own, all at once."""
    with SITES["local"]() as site:
        hit = [Blow("terminal", False, 0.2, 0, 0), Blow("supervisor", False, 0.4, 0, 0)]
        hit += [Blow("agent", False, 0.6, 1, 1), Blow("rank", False, 0.8, 1, 1)]
        told = tell(site, acts(*hit))
        assert not told.lies
        assert {what.split()[1] for what in told.fell} == {blow.what for blow in hit}


@pytest.mark.lab
@pytest.mark.timeout(240)
def test_what_befalls_jobs_on_ssh_hosts_is_told_truly(ssh_lab_ready: None) -> None:
    """A job whose host is cut off, and one whose supervisor dies; the lab leaves no namespace."""
    with SITES["ssh"]() as site:
        hit = [Blow("supervisor", False, 0.3, 0, 0), Blow("cut", False, 1.0, 1, 1)]
        told = tell(site, acts(*hit))
        assert not told.lies
        assert {what.split()[1] for what in told.fell} == {blow.what for blow in hit}


def test_a_lie_is_found() -> None:
    """A job that is left alone cannot be said to have failed."""
    with SITES["local"]() as site:
        (act,) = acts(Blow("terminal", True, 0.0, 0, 0))
        planted = Act(act.name, 1, 1, 4, 0, False, (0, 2), act.blows)
        assert not tell(site, [planted]).lies
        assert told_of_nothing(site, planted)


def told_of_nothing(site: Site, act: Act) -> list[str]:
    from tests.chaos.truth import Landed, lies

    innocent = Act(act.name, act.nodes, act.nproc, act.steps, 0, False, None, ())
    return list(lies(site, Landed(innocent, frozenset(), frozenset(), False, False)))
