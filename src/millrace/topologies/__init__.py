"""Storm's model in Python: spouts, bolts, groupings, guarantees, windows and state over the log."""

from millrace.topologies.model.bolts import BatchingBolt, Bolt, RichBolt, StatefulBolt
from millrace.topologies.model.component import TaskContext
from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.grouping import Grouping
from millrace.topologies.model.log import LogBolt, LogSpout
from millrace.topologies.model.serializers import register_serializer
from millrace.topologies.model.shell import ShellBolt, ShellSpout
from millrace.topologies.model.spouts import ReliableSpout, Spout
from millrace.topologies.model.streams import Stream
from millrace.topologies.model.topology import Topology
from millrace.topologies.model.tuples import Tuple
from millrace.topologies.model.windows import Count, Duration, TupleWindow, Window, WindowedBolt

__all__ = [
    "BatchingBolt",
    "Bolt",
    "Count",
    "Duration",
    "Grouping",
    "LogBolt",
    "LogSpout",
    "ReliableSpout",
    "RichBolt",
    "ShellBolt",
    "ShellSpout",
    "Spout",
    "StatefulBolt",
    "Stream",
    "TaskContext",
    "Topology",
    "TopologyError",
    "Tuple",
    "TupleWindow",
    "Window",
    "WindowedBolt",
    "register_serializer",
]
