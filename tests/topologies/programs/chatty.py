"""A bolt that prints to standard output, which belongs to the protocol."""

import os
import sys

while sys.stdin.readline() != "end\n":
    pass
print(f'{{"pid": {os.getpid()}}}\nend', flush=True)
while sys.stdin.readline() != "end\n":
    pass
print("debugging here\nend", flush=True)
sys.stdin.read()
