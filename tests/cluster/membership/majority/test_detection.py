"""Which nodes count as lost, which are declared down or up, and what a node without a lease does."""

from warren.cluster.membership.majority.failure_detector import FailureDetector
from warren.cluster.membership.majority.pause import Pause, PauseAction, PauseStage
from warren.cluster.membership.majority.verdicts import Judgement, Verdicts

# --- the failure detector ---


def detector(*nodes, draw=0.5, now=0.0):
    made = FailureDetector(2.0, lambda: draw)
    made.watch(nodes, now)
    return made


def test_a_silent_node_is_lost_after_the_tick_time():
    seen = detector("b", "c")
    seen.heard("c", 1.0)
    assert seen.lost(1.99) == {}
    assert seen.lost(2.0) == {"b": "nothing has come from it for 2.0 s"}


def test_the_time_is_drawn_a_tenth_longer_or_shorter():
    assert set(detector("b", draw=0.0).lost(1.8)) == {"b"}
    assert detector("b", draw=1.0).lost(2.19) == {}
    assert set(detector("b", draw=1.0).lost(2.2)) == {"b"}


def test_a_host_that_refuses_for_half_a_second_has_no_process():
    """A host that refuses connections for half a second has no process any more, so a killed node is noticed in that
    time (CL-50).
    """
    seen = detector("b")
    seen.refused("b", 1.0)
    seen.refused("b", 1.2)
    assert not seen.is_dead("b", 1.49)
    assert seen.lost(1.5) == {"b": "its host refuses connections, so its process has ended"}
    seen.heard("b", 1.6)
    assert seen.lost(1.6) == {}


def test_what_a_host_has_refused_says_nothing_about_the_next_run():
    seen = detector("b")
    seen.refused("b", 1.0)
    seen.run_began("b")
    assert not seen.is_dead("b", 1.6)
    seen.refused("b", 1.6)
    assert seen.is_dead("b", 2.1)


def test_a_node_that_is_not_watched_any_more_is_forgotten():
    seen = detector("b", "c")
    seen.watch(("c", "d"), 1.9)
    assert set(seen.lost(2.5)) == {"c"}
    assert set(seen.lost(4.0)) == {"c", "d"}


# --- verdicts ---


def leader(now=0.0):
    return Verdicts("a", "a1", now, 2.0)


def test_a_new_leader_waits_for_everybody_and_declares_all_at_once():
    """A new leader waits for all members and declares them up and down as one set, so that after a power cut all old
    runs go down together (CL-43).
    """
    rows = {"a": "a0", "b": "b0", "c": "c0"}
    verdicts, seen = leader(), detector("b", "c")
    verdicts.heard("b", "b1", True)
    seen.heard("b", 0.5)
    assert verdicts.judge(rows, seen, 0.5) is None, "c may come"
    verdicts.heard("c", "c1", True)
    seen.heard("c", 0.6)
    assert verdicts.judge(rows, seen, 0.6) == Judgement(
        (("a", "a0"), ("b", "b0"), ("c", "c0")), (("a", "a1"), ("b", "b1"), ("c", "c1"))
    )


def test_a_new_leader_does_not_wait_for_a_process_that_has_ended():
    verdicts, seen = leader(), detector("b")
    seen.refused("b", 0.0)
    assert verdicts.judge({"a": "a1", "b": "b0"}, seen, 0.5) == Judgement((("b", "b0"),), ())


def test_a_new_leader_waits_no_longer_than_the_tick_time():
    verdicts, seen = leader(), detector("b")
    rows = {"a": "a1", "b": "b0"}
    assert verdicts.judge(rows, seen, 1.99) is None
    assert verdicts.judge(rows, seen, 2.0) == Judgement((("b", "b0"),), ())


def test_a_node_with_a_lease_is_not_down_though_it_is_silent():
    verdicts, seen = leader(), detector("b")
    verdicts.heard("b", "b0", False)
    seen.heard("b", 0.0)
    rows = {"a": "a1", "b": "b0"}
    verdicts.granter.grant("b", 1.0)
    assert verdicts.judge(rows, seen, 2.5) is None
    assert verdicts.judge(rows, seen, 3.0) == Judgement((("b", "b0"),), ())


def test_a_run_that_was_declared_down_does_not_come_up_again():
    verdicts, seen = leader(), detector("b")
    verdicts.heard("b", "b0", False)
    assert verdicts.judge({"a": "a1", "b": None}, seen, 0.1) is None
    verdicts.heard("b", "b1", True)
    assert verdicts.judge({"a": "a1", "b": None}, seen, 0.2) == Judgement((), (("b", "b1"),))


def test_a_node_that_waits_to_be_up_and_falls_silent_is_not_declared_up():
    verdicts, seen = leader(), detector("b")
    verdicts.heard("b", "b1", True)
    assert verdicts.judge({"a": "a1", "b": None}, seen, 2.1) is None


def test_a_run_that_was_just_declared_up_has_time_to_ask():
    verdicts, seen = leader(), detector("b")
    seen.heard("b", 10.0)
    verdicts.heard("b", "b1", True)
    assert verdicts.judge({"a": "a1", "b": None}, seen, 10.0) == Judgement((), (("b", "b1"),))
    rows = {"a": "a1", "b": "b1"}
    assert verdicts.judge(rows, seen, 10.1) is None
    assert verdicts.judge(rows, seen, 12.05) is None
    assert verdicts.judge(rows, seen, 12.1) == Judgement((("b", "b1"),), ())


def test_the_leader_is_never_down_in_its_own_eyes():
    assert leader().judge({"a": "a1"}, detector(), 100.0) is None


# --- the pause ---


def test_a_short_loss_of_the_lease_stalls_and_closes_nothing():
    pause = Pause(5.0)
    assert pause.step(0.0, True, False) is None
    assert pause.step(1.0, False, False) is None
    assert pause.stage is PauseStage.STALLED
    assert pause.step(5.9, False, False) is None
    assert pause.step(5.95, True, False) is None
    assert pause.stage is PauseStage.RUNNING


def test_a_long_one_pauses_the_node_and_its_return_resumes_it():
    """A node that has had no lease for long closes its clients' connections, and serves clients again when it has one
    (CL-54, CL-55).
    """
    pause = Pause(5.0)
    pause.step(1.0, False, False)
    assert pause.step(6.0, False, False) is PauseAction.PAUSE
    assert pause.step(7.0, False, False) is None
    assert pause.step(8.0, True, False) is PauseAction.RESUME
    assert pause.step(9.0, True, False) is None


def test_a_node_that_was_declared_down_restarts_once():
    pause = Pause(5.0)
    pause.step(1.0, False, False)
    assert pause.step(3.0, False, True) is PauseAction.RESTART
    assert pause.step(3.1, True, True) is None
    assert pause.stage is PauseStage.RESTARTING


def test_a_node_restarts_at_most_once_in_ten_seconds():
    """A node begins a new run at most once in 10 s, and serves no clients until then (CL-53)."""
    pause = Pause(5.0, restarted_at=0.0)
    assert pause.step(3.0, True, True) is None
    assert pause.step(8.0, True, True) is PauseAction.PAUSE
    assert pause.step(9.9, True, True) is None
    assert pause.step(10.0, True, True) is PauseAction.RESTART
