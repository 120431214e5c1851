"""Thousands of idle sensors in little memory."""

import socket

import psutil
import pytest

from millrace.mqtt.packets import packets as p
from millrace.mqtt.packets.encoding import encode
from millrace.mqtt.packets.packets import Version
from millrace.testing import Broker

from .raw_client import RawClient
from .serving import HOST, ServerProcess

SENSORS = 5000
KILOBYTES_EACH = 12


@pytest.mark.proof
def test_an_idle_sensor_costs_a_few_kilobytes(broker: Broker) -> None:
    server = ServerProcess(broker.bootstrap, "--name", "idle")
    sensors = []
    try:
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        for number in range(SENSORS):
            sensor = socket.create_connection((HOST, server.port), 30)
            sensor.sendall(
                encode(p.Connect(f"sensor-{number}", Version.V3_1_1, keep_alive=600), Version.V3_1_1)
            )
            assert sensor.recv(4) == b"\x20\x02\x00\x00"
            sensors.append(sensor)
        grown = process.memory_info().rss - before
        assert grown / SENSORS < KILOBYTES_EACH * 1024
        with RawClient(server.port, "another") as client:
            client.ping()
    finally:
        for sensor in sensors:
            sensor.close()
        server.kill9()
