"""What workers measure: the names, labels and help of each measure, in one table for those who count and who tell."""

from __future__ import annotations

from dataclasses import dataclass

SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
LONG = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)


@dataclass(frozen=True, slots=True)
class Measure:
    """A counter; with `buckets` a histogram of seconds. `name` is without `_total`."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


RUNS = Measure(
    "sostenuto_runs_ended",
    "Runs that ended, by queue and what their job is then",
    ("queue", "state", "reason"),
)
RECOVERIES = Measure("sostenuto_recoveries", "Runs that went on with a job whose last run had died")
LOST_LEASES = Measure(
    "sostenuto_lost_leases", "Runs whose lease ended: their worker died, froze or was cut off"
)
COMPACTIONS = Measure("sostenuto_compactions", "Compactions of contexts", ("outcome",))
SUMMARIES = Measure("sostenuto_final_summaries", "Attempts at final summaries", ("outcome",))
STEPS = Measure(
    "sostenuto_step_seconds", "Steps: a model call with its tool results, own work included", (), LONG
)
MODEL_CALLS = Measure("sostenuto_model_calls", "Calls of models", ("model", "outcome"))
MODEL_SECONDS = Measure(
    "sostenuto_model_call_seconds", "Calls of models that were answered", ("model",), LONG
)
TOOL_CALLS = Measure("sostenuto_tool_calls", "Calls of tools", ("tool", "outcome"))
TOOL_SECONDS = Measure("sostenuto_tool_call_seconds", "Calls of tools that were run", ("tool",), SHORT)
TOKENS = Measure(
    "sostenuto_tokens", "Tokens of models' calls, estimated where an endpoint does not count", ("kind",)
)
COST = Measure("sostenuto_cost", "Cost of models' calls, as far as prices are known")

MEASURES = (
    RUNS, RECOVERIES, LOST_LEASES, COMPACTIONS, SUMMARIES, STEPS, MODEL_CALLS, MODEL_SECONDS, TOOL_CALLS, TOOL_SECONDS,
    TOKENS, COST,
)  # fmt: skip
