"""Linear DRPC topologies: a call goes through a chain of bolts, and the last one's result is the reply."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from millrace.drpc.coordination import COORDINATION, CoordinatedBolt
from millrace.drpc.topics import REPLIES, request_topic
from millrace.topologies import Bolt, Grouping, LogBolt, LogSpout, Stream, Topology, TopologyError, Tuple
from millrace.topologies.model.specs import ComponentSpec
from millrace.topologies.model.streams import DEFAULT_STREAM, declared_streams

# A failed call is answered at once, with the reason, and never tried again.
CONFIG: Mapping[str, Any] = {"topology.max.fails": 0, "topology.dead.letter.topic": REPLIES}
ATTEMPT_BYTES = 4


class DrpcSpout(LogSpout):
    """Emits the calls of a function."""

    creates_topic = True

    def __init__(self, function: str) -> None:
        super().__init__(request_topic(function), format="json")


class Arguments(Bolt):
    """Emits the id and the arguments of a call, unless its caller waits no longer."""

    outputs = (
        Stream(["id", "args"]),
        Stream(["id", "count"], name=COORDINATION, direct=True),
    )

    def __init__(self, downstream: str) -> None:
        self._downstream = downstream

    def process(self, tup: Tuple) -> None:
        request = tup["value"]
        if request["expires"] < time.time() * 1000:
            return
        # A call that is delivered again after a crash must not mix with what is left of its first attempt.
        attempt = f"{tup['key']}.{secrets.token_hex(ATTEMPT_BYTES)}"
        sent = self.emit([attempt, request["args"]], need_task_ids=True) or []
        for task in self.context.tasks[self._downstream]:
            self.emit([attempt, sent.count(task)], stream=COORDINATION, direct_task=task)


class Step:
    """A bolt in the chain of a function: its class, the arguments of its instances, tasks and grouping."""

    def __init__(
        self,
        bolt: type[Bolt],
        *arguments: Any,
        par: int = 1,
        grouping: Grouping = Grouping.SHUFFLE,
        **keywords: Any,
    ) -> None:
        self.bolt = bolt
        self.arguments = arguments
        self.keywords = keywords
        self.par = par
        self.grouping = grouping

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that the bolt emits."""
        streams = declared_streams(self.bolt.__name__, self.bolt.outputs)
        if set(streams) != {DEFAULT_STREAM}:
            raise TopologyError(f"{self.bolt.__name__} needs one stream; declare outputs = ['id', ...]")
        return streams[DEFAULT_STREAM].fields


def components(function: str, steps: Sequence[Step], *, par: int = 1) -> dict[str, ComponentSpec]:
    """The components of a function: its calls, the chain of bolts, and the reply."""
    if not steps:
        raise TopologyError(f"the function {function} has no bolts; write bolts = [Step(MyBolt)]")
    last = steps[-1]
    if len(last.fields) != 2:
        raise TopologyError(
            f"{last.bolt.__name__} is the last bolt of {function} and emits"
            f" {', '.join(last.fields) or 'nothing'};"
            " it must declare the id of the call and the result, as in outputs = ['id', 'result']"
        )
    names = [f"{function}-{number}-{step.bolt.__name__}" for number, step in enumerate(steps, 1)]
    calls = DrpcSpout.spec(function, par=par, name=f"{function}-calls")
    previous = Arguments.spec(
        names[0], inputs={calls: Grouping.LOCAL_OR_SHUFFLE}, par=par, name=f"{function}-arguments"
    )
    found = [calls, previous]
    for number, (name, step) in enumerate(zip(names, steps, strict=True)):
        previous = CoordinatedBolt.spec(
            step.bolt,
            step.arguments,
            step.keywords,
            names[number - 1] if number else None,
            names[number + 1] if number + 1 < len(names) else None,
            inputs={previous: step.grouping, previous[COORDINATION]: Grouping.DIRECT},
            outputs=[Stream(step.fields), Stream(["id", "count"], name=COORDINATION, direct=True)],
            par=step.par,
            config={**CoordinatedBolt.config, **step.bolt.config},
            name=name,
        )
        found.append(previous)
    key, value = last.fields
    found.append(
        LogBolt.spec(
            reply_topic,
            key=key,
            value=value,
            inputs={previous: Grouping.LOCAL_OR_SHUFFLE},
            name=f"{function}-reply",
        )
    )
    return {spec.name or "": spec for spec in found}


def reply_topic(_: Tuple) -> str:
    """The topic of replies. It is created with the dead letters, which are replies too."""
    return REPLIES


class LinearDRPC(Topology):
    """A function that callers reach by DRPC::

    class Reach(LinearDRPC):
        function = "reach"
        bolts = [
            Step(GetTweeters, par=2),
            Step(GetFollowers, par=2),
            Step(PartialUniquer, par=2, grouping=Grouping.fields("id", "follower")),
            Step(CountAggregator, grouping=Grouping.fields("id")),
        ]

    The first bolt gets the fields `id` and `args`. The first field of every tuple is the id of the call.
    """

    function: ClassVar[str] = ""
    bolts: ClassVar[Sequence[Step]] = ()
    functions: ClassVar[Mapping[str, Sequence[Step]]] = {}
    """For several functions in one topology: the bolts of each."""

    def __init_subclass__(cls) -> None:
        if cls.bolts and not cls.function:
            raise TopologyError(f"{cls.__name__} has no function; write function = 'reach'")
        chains = {**cls.functions, **({cls.function: cls.bolts} if cls.function else {})}
        cls.specs = {
            name: spec
            for function, steps in chains.items()
            for name, spec in components(function, steps).items()
        }
        cls.config = {**CONFIG, **cls.config}
        super().__init_subclass__()
