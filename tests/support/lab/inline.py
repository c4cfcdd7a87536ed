"""An engine without processes: orders are done where they are given."""

from simlab.sweeps.execute import Answer, Order, execute


class InlineEngine:
    """Does an order when it is submitted."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def free(self) -> int:
        return int(not self.answers)

    def submit(self, order: Order) -> None:
        self.answers.append(execute(order))

    def collect(self, seconds: float) -> list[Answer]:
        done, self.answers = self.answers, []
        return done

    def close(self) -> None:
        pass
