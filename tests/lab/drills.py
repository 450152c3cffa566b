"""Drills started together and awaited one by one: most of their time is waiting."""

from concurrent.futures import Future, ThreadPoolExecutor

from whichrank.lab import catalogue, place
from whichrank.lab.drill import Outcome, drill

AT_ONCE = 3


class Drills:
    """Runs one drill of every fault that is asked for; `of` waits for it."""

    def __init__(self, names: list[str]) -> None:
        self.guardian = place.guardian()
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.outcomes: dict[str, Future[Outcome]] = {}
        self.repeated: list[Outcome] = []
        for number, name in enumerate(names):
            fault = catalogue.find(name)
            if not fault.lacking():
                # Seeds and sizes vary with the fault, and are the same in every run.
                size = max(fault.least_world, 2 + number % 3)
                self.outcomes[name] = self.pool.submit(
                    drill, fault, 100 + number, size, launcher="fork", tell=lambda _: None
                )

    def of(self, name: str) -> Outcome:
        """The outcome; a wrong one is tried once more, alone: three jobs at once on two cores disturb each other."""
        outcome = self.outcomes[name].result()
        if outcome.mark.right and outcome.mark.exact:
            return outcome
        plan = outcome.plan
        again = drill(outcome.fault, plan.seed, plan.world, launcher="fork", tell=lambda _: None)
        self.repeated.append(again)
        return again

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        for future in self.outcomes.values():
            if future.done() and not future.cancelled() and future.exception() is None:
                folder = future.result().folder
                if folder is not None:
                    place.tidy(folder)
        for outcome in self.repeated:
            if outcome.folder is not None:
                place.tidy(outcome.folder)
        place.tidy_own()
        self.guardian.stdin.close()
        self.guardian.wait()
