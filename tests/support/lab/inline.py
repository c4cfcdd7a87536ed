"""An engine without processes: orders are done where they are given."""

from simlab.sweeps.execute import Answer, Order, execute


class InlineEngine:
    """Does an order when it is submitted; the answers of `slots` orders come together."""

    def __init__(self, slots: int = 1) -> None:
        self.slots = slots
        self.answers: list[Answer] = []

    def free(self) -> int:
        return self.slots - len(self.answers)

    def submit(self, order: Order) -> None:
        self.answers.append(execute(order))

    def collect(self, seconds: float) -> list[Answer]:
        done, self.answers = self.answers, []
        return done

    def close(self) -> None:
        pass
