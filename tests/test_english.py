"""Plain English: words that make a sentence hard to read stay out of code, tests and pages.

Checked are comments, docstrings, texts of three words and more, names of tests, and whole pages.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PREFER = {
    r"whoever|whomever|nobody|somebody|everybody": "client, caller, member, broker: name the program",
    r"anew": "again",
    r"mend(?:s|ed|ing)?": "repair, fix",
    r"for ever": "forever",
    r"(?<!un)heard of": "known",
    r"c[ao]mes? into being": "is created",
}
WORDS = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): better for words, better in PREFER.items()}
QUESTION = re.compile(r"(?:What|Where|How|Who|Whom|Whose)\b(?![^.]*\?)")
COMMENT_OF_JAVA_OR_GO = re.compile(r"//.*|/\*(?s:.*?)\*/")

Text = tuple[int, str]


def faults(path: str, content: str) -> list[str]:
    """The words to avoid in a file, each with its line and a better word."""
    if path.endswith(".py"):
        texts = list(texts_of_python(content))
    elif path.endswith(".md"):
        texts = list(enumerate(content.splitlines(), 1))
    else:
        texts = [
            (content.count("\n", 0, match.start()) + 1, match[0])
            for match in COMMENT_OF_JAVA_OR_GO.finditer(content)
        ]
    found = [
        f"{path}:{line}: {match[0]!r}; write {better}"
        for line, text in texts
        for pattern, better in WORDS.items()
        for match in pattern.finditer(text)
    ]
    if path.endswith(".py"):
        found += [
            f"{path}:{line}: a docstring that opens with {text.split()[0]!r}; name the thing"
            for line, text in docstrings(content)
            if QUESTION.match(text)
        ]
    return found


def texts_of_python(content: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 2:
            yield node.lineno, node.value
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def docstrings(content: str) -> Iterator[Text]:
    """Strings that stand alone: those of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, text


def checked_files() -> list[str]:
    try:
        listed = subprocess.run(
            ["git", "ls-files", "*.py", "*.md", "*.java", "*.go"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the files of the project are listed by git")
    own = Path(__file__).relative_to(ROOT).as_posix()
    return [path for path in listed if path != own and "lecture" not in path and (ROOT / path).exists()]


def test_the_project_speaks_plain_english() -> None:
    found = [
        fault for path in checked_files() for fault in faults(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("a.py", "# Whoever asks.", ["a.py:1: 'Whoever'"]),
        ("a.py", '"""What a broker says."""', ["a.py:1: a docstring that opens with 'What'"]),
        ("a.py", "x = 1\n'''How long it takes.'''", ["a.py:2: a docstring that opens with 'How'"]),
        ("a.py", "def test_a_topic_made_anew() -> None: ...", ["a.py:1: 'anew'"]),
        ("a.py", "raise ValueError('repeated for ever, it seems')", ["a.py:1: 'for ever'"]),
        ("a.md", "The log\nis mended.", ["a.md:2: 'mended'"]),
        ("a.go", "x := 1 // heard of\n", ["a.go:1: 'heard of'"]),
        ("a.py", "group = 'nobody'  # A recommended name.", []),
        ("a.java", 'String nobody = "nobody";', []),
    ],
)
def test_words_to_avoid_are_found(path: str, content: str, expected: list[str]) -> None:
    assert [fault.partition(";")[0] for fault in faults(path, content)] == expected
