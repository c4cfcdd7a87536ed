"""An executor without processes: calls are made where they are submitted."""

from concurrent.futures import Executor, Future


class Inline(Executor):
    """Makes a call when it is submitted, one after another."""

    slots = 1

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def run(sweep, out, engine=None, figures=False):
    """Run a sweep in this process, or by `engine`; return its report."""
    return sweep.run(out, engine=engine or Inline(), durable=False, figures=figures)
