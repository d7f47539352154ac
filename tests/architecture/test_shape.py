"""The habits that keep the code small: sizes, names, and who may touch what."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = sorted(
    path.relative_to(ROOT)
    for app in ("gateway", "jobs", "inference")
    for path in (ROOT / app).rglob("*.py")
    if "migrations" not in path.parts
)
TESTS = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))
PURE = sorted((ROOT / "gateway" / "dialects").glob("*/*.py"))

MAX_LINES = 400
MAX_TEST_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_BROAD_EXCEPTS = 5
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}
READS_THE_ENVIRONMENT = [
    Path("gateway/config.py"),
    Path("gateway/supervise"),
    # What the catalogue refers to is known by no name in advance.
    Path("inference/secret_references.py"),
    # It hands its own on to Claude Code.
    Path("gateway/management/commands/batch.py"),
    Path("gateway/management/commands/claude.py"),
]


def source(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(source(path)))


def text(node: ast.AST | None) -> str:
    return ast.unparse(node) if node else ""


@pytest.mark.parametrize("path", [*CODE, *TESTS], ids=str)
def test_files_are_short(path: Path) -> None:
    limit = MAX_TEST_LINES if path in TESTS else MAX_LINES
    assert len(source(path).splitlines()) <= limit


@pytest.mark.parametrize("path", CODE, ids=str)
def test_functions_are_short(path: Path) -> None:
    too_long = [
        f"{path}:{node.lineno} {node.name}"
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert too_long == []


@pytest.mark.parametrize("path", [*CODE, *TESTS], ids=str)
def test_modules_are_named_by_what_they_hold(path: Path) -> None:
    assert not VAGUE_NAMES & {path.stem, *path.parts}


def test_broad_excepts_are_counted() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path in CODE
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or {"Exception", "BaseException"} & set(_caught(node.type)))
    ]
    assert len(found) <= MAX_BROAD_EXCEPTS, found


def _caught(node: ast.expr) -> list[str]:
    members = node.elts if isinstance(node, ast.Tuple) else [node]
    return [text(member) for member in members]


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in CODE
        if not any(path.is_relative_to(allowed) for allowed in READS_THE_ENVIRONMENT)
    ],
    ids=str,
)
def test_settings_are_read_in_one_place(path: Path) -> None:
    """Others may only hand a value to a library that looks for it there."""
    assert list(_environment_reads(path)) == []


def _environment_reads(path: Path) -> Iterator[str]:
    """Find `os.environ` and `os.getenv`, save where a value is only put in."""
    writes = set()
    for node in nodes(path):
        match node:
            case ast.Attribute(value=ast.Attribute() as target, attr="setdefault"):
                writes.add((target.lineno, target.col_offset))
            case ast.Subscript(value=ast.Attribute() as target, ctx=ast.Store()):
                writes.add((target.lineno, target.col_offset))
    for node in nodes(path):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "getenv"):
                if (node.lineno, node.col_offset) not in writes:
                    yield f"{path}:{node.lineno}"
            case ast.ImportFrom(module="os", names=names):
                if {"environ", "getenv"} & {name.name for name in names}:
                    yield f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    "path",
    [path.relative_to(ROOT) for path in PURE if path.stem in ("wire", "parse", "encode")],
    ids=str,
)
def test_translation_is_pure(path: Path) -> None:
    """No waiting, clock, chance, settings, log or print: the same input, the same output."""
    impure = {"time", "datetime", "random", "secrets", "uuid", "uuid_utils", "os", "logging"}
    impure |= {"asyncio", "django", "redis", "channels"}
    for node in nodes(path):
        assert not isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor), node.lineno
        match node:
            case ast.Import(names=names):
                imported = {name.name for name in names}
            case ast.ImportFrom(module=module):
                imported = {module or ""}
            case _:
                continue
        assert not {name.partition(".")[0] for name in imported} & impure, imported


def test_there_is_no_synchronous_twin_of_asynchronous_code() -> None:
    entries = {"tasks.py", "commands"}
    found = [
        f"{path}:{node.lineno}"
        for path in CODE
        if not entries & set(path.parts)
        for node in nodes(path)
        if isinstance(node, ast.Call) and text(node.func).rpartition(".")[2] == "async_to_sync"
    ]
    assert found == []
