from millrace.testing import ManualClock
from millrace.testing.timers import ManualTimers


def test_timers_fire_in_order_at_their_times() -> None:
    clock = ManualClock(0)
    timers = ManualTimers(clock)
    fired: list[tuple[str, int]] = []
    timers.schedule("late", 30, lambda: fired.append(("late", clock.now_ms())))
    timers.schedule("early", 10, lambda: fired.append(("early", clock.now_ms())))
    timers.advance(29)
    assert fired == [("early", 10)]
    assert "late" in timers
    timers.advance(1)
    assert fired == [("early", 10), ("late", 30)]
    assert (len(timers), clock.now_ms()) == (0, 30)


def test_scheduling_again_replaces_and_cancelling_forgets() -> None:
    timers = ManualTimers(ManualClock(0))
    fired: list[str] = []
    timers.schedule("a", 10, lambda: fired.append("first"))
    timers.schedule("a", 20, lambda: fired.append("second"))
    timers.schedule("b", 10, lambda: fired.append("cancelled"))
    timers.cancel("b")
    timers.cancel("never there")
    timers.advance(100)
    assert fired == ["second"]


def test_a_timer_may_schedule_the_next() -> None:
    timers = ManualTimers(ManualClock(0))
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(len(ticks))
        timers.schedule("tick", 10, tick)

    tick()
    timers.advance(35)
    assert ticks == [0, 1, 2, 3]
