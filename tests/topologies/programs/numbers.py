"""A spout by Storm's multilang protocol: emits three numbers, and the second again when it fails."""

import json
import os
import sys


def receive() -> dict:
    lines = []
    while (line := sys.stdin.readline()) != "end\n":
        if not line:
            sys.exit()
        lines.append(line)
    return json.loads("".join(lines))


def send(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\nend\n")
    sys.stdout.flush()


receive()
send({"pid": os.getpid()})
left = [1, 2, 3]
while True:
    command = receive()
    match command["command"]:
        case "next":
            if left:
                number = left.pop(0)
                send({"command": "emit", "id": number, "tuple": [number]})
                tasks = receive()
                assert isinstance(tasks, list)
        case "fail":
            left.append(command["id"] * 10)
        case "ack":
            send({"command": "log", "msg": f"acked {command['id']}"})
    send({"command": "sync"})
