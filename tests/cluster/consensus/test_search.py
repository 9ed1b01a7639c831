"""Random schedules break no law of Raft."""

from . import schedules


def test_schedules_break_no_law(first_seed):
    for seed in range(first_seed, first_seed + 300):
        failure = schedules.run(seed)
        assert failure is None, "\n".join([f"seed {seed}", *schedules.told(seed)[-60:]])


def test_a_seed_gives_the_same_story_again():
    assert schedules.told(7) == schedules.told(7)
