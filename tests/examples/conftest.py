"""Makes the examples importable from any working directory.

With MILLRACE_MASTER and EXAMPLES_BOOTSTRAP the tests run on that Spark cluster and that broker, whose topics
are deleted before each test.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).parents[2]))

if BOOTSTRAP := os.environ.get("EXAMPLES_BOOTSTRAP"):

    @pytest.fixture
    def millrace_broker() -> SimpleNamespace:
        admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
        names = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
        if names:
            for deleted in admin.delete_topics(names).values():
                deleted.result(30)
        return SimpleNamespace(bootstrap=BOOTSTRAP)
