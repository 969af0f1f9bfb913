"""When a step is given up with right: after as many losses as are allowed, each by a cause of its own."""

from __future__ import annotations

import pytest

from noetl.engine.decide import MOST_LOSSES
from tests.distributed.losses import Held, Hit, Loss, given_up, reason_of

LEASE_SECONDS = 2.0


def lost(number: int, *, worker: str = "worker-1", after_progress: bool = False) -> Loss:
    """The loss with that number in a row; each lease is taken when the one before it is over."""
    leased_at = number * LEASE_SECONDS
    return Loss("7", "7.1", number, worker, number, leased_at, leased_at + LEASE_SECONDS, after_progress)


def kill(at: float, worker: str = "worker-1") -> Hit:
    return Hit("kill", at, at + 0.1, frozenset([worker]))


def unheard(epoch: int, at: float) -> Hit:
    """An answer with a lease in it that was lost."""
    return Hit("work lost", at, at + 0.1, frozenset(), frozenset([Held("7", "7.1", epoch)]))


IN_A_ROW = [lost(number) for number in range(1, MOST_LOSSES + 1)]
KILLS = [kill(each.leased_at + 0.5) for each in IN_A_ROW]
UNHEARD = [unheard(each.epoch, each.leased_at) for each in IN_A_ROW]


@pytest.mark.parametrize(
    "hits", [KILLS, UNHEARD, [*KILLS[:1], *UNHEARD[1:]]], ids=["kills", "answers", "both"]
)
def test_a_step_is_given_up_with_right_when_each_of_its_workers_was_taken_from_it(hits: list[Hit]) -> None:
    assert given_up(IN_A_ROW, hits) == {"7"}


@pytest.mark.parametrize("missing", range(MOST_LOSSES))
@pytest.mark.parametrize("hits", [KILLS, UNHEARD], ids=["kills", "answers"])
def test_a_loss_that_nothing_explains_is_told_of(hits: list[Hit], missing: int) -> None:
    some = [hit for number, hit in enumerate(hits) if number != missing]
    with pytest.raises(AssertionError, match="nothing had happened"):
        given_up(IN_A_ROW, some)


def test_an_answer_that_was_lost_explains_no_lease_but_those_in_it() -> None:
    loss = lost(2)
    assert reason_of(loss, [unheard(1, loss.leased_at), unheard(3, loss.leased_at)]) is None
    assert reason_of(loss, [kill(loss.leased_at, "worker-2")]) is None
    other = unheard(2, loss.leased_at)
    assert reason_of(loss._replace(execution_id="8"), [other]) is None
    assert reason_of(loss, [other]) is other


def test_one_cause_does_not_explain_two_losses() -> None:
    for_long = Hit("server killed", 0.0, 100.0, frozenset(["worker-1"]))
    with pytest.raises(AssertionError, match="nothing had happened"):
        given_up(IN_A_ROW, [for_long])
    assert given_up(IN_A_ROW, [for_long] * MOST_LOSSES) == {"7"}


def test_a_step_that_finished_a_task_in_between_is_not_given_up() -> None:
    moved_on = [*IN_A_ROW[:-1], lost(MOST_LOSSES, after_progress=True)]
    with pytest.raises(AssertionError, match="between finished tasks"):
        given_up(moved_on, KILLS)


def test_fewer_losses_than_allowed_need_no_cause() -> None:
    assert given_up(IN_A_ROW[:-1], []) == set()
