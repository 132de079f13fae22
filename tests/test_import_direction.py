"""The layout's rules, read off the syntax tree: who may import whom, and where randomness may live.

Each rule is a function from sources to violations, so that the same function is shown to find planted ones.
"""

import ast
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: Which of our packages each of our packages may import, besides itself.
LAYERS = {
    "errors": set(),
    "engines": {"errors"},
    "mechanisms": {"errors"},
    "schemas": {"errors"},
    "transforms": {"errors", "mechanisms", "schemas"},
    "pipelines": {"errors", "engines", "mechanisms", "schemas", "transforms"},
}
#: What else may be imported where not everything may: the mathematics runs on a small client.
THIRD_PARTY = {"errors": set(), "mechanisms": {"numpy", "cryptography"}}
#: What one module alone may import besides, which others ask `mechanisms.compiled` for: it need not be installed.
OPTIONAL = {"mechanisms.loops": "numba"}

#: The server's half, by the first word of a module's name.
SERVER = {
    "transforms": (
        "count",
        "estimate",
        "publish",
        "report_files",
        "report_messages",
        "kafka_source",
        "gathered",
        "kafka_offsets",
        "kafka_results",
        "event_clock",
        "watch_folder",
    ),
    "schemas": ("reports", "counts", "estimates", "manifest", "messages", "event_time"),
    "pipelines": ("aggregate",),
}
#: Modules that know what a true record looks like.
CLIENT_ONLY = {
    "schemas.records",
    *(
        f"transforms.{name}"
        for name in (
            "records",
            "attribute_columns",
            "generated",
            "record_batches",
            "record_files",
            "record_messages",
            "generate_stream",
            "slice_records",
            "raw_columns",
            "pair_rows",
            "prepare",
            "perturb",
            "memo",
            "regroup",
            "rejects",
            "sensitive_table",
            "slice_records",
            "symbol_truth",
            "truth",
            "vector_values",
            "in_memory",
        )
    ),
    "mechanisms.populations",
    "pipelines.simulate",
}
#: The one module that may draw random numbers.
RANDOMNESS = "mechanisms.randomness"

Sources = dict[str, str]  # module, such as "transforms.count" (a package's __init__: "transforms") → its text


@dataclass(frozen=True)
class Import:
    """One imported thing: of ours ("transforms.count"), or of others ("numpy.random")."""

    target: str
    name: str | None
    ours: bool
    relative: bool
    typing_only: bool
    line: int


def sources() -> Sources:
    found = {}
    for package in LAYERS:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return found


@cache
def imports(module: str, source: str) -> tuple[Import, ...]:
    """Every import of a module, also those inside functions."""
    tree = ast.parse(source)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = []
    for node in ast.walk(tree):
        hidden = id(node) in typing_only
        if isinstance(node, ast.Import):
            for alias in node.names:
                ours = alias.name.split(".")[0] in {"ldp_beam", *LAYERS}
                target = alias.name.removeprefix("ldp_beam.")
                found.append(Import(target, None, ours, False, hidden, node.lineno))
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, source, node)
            ours = node.level > 0 or base.split(".")[0] in {"ldp_beam", *LAYERS}
            base = base.removeprefix("ldp_beam").removeprefix(".")
            for alias in node.names:
                target, name = (base, alias.name) if base else (alias.name, None)
                found.append(Import(target, name, ours, node.level > 0, hidden, node.lineno))
    return tuple(found)


def _base(module: str, source: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    home = ["ldp_beam", *module.split(".")]
    # A package's __init__ is named like the package: its first dot is the package itself.
    up = node.level - (1 if module in LAYERS else 0)
    return ".".join(home[: len(home) - up] + ([node.module] if node.module else []))


# -- the rules --------------------------------------------------------------------------------------------


def layer_violations(modules: Sources) -> list[str]:
    """Imports against the direction pipelines → transforms → schemas, mechanisms → errors."""
    found = []
    for module, source in modules.items():
        package = module.split(".")[0]
        for item in imports(module, source):
            other = item.target.split(".")[0]
            if item.ours and not item.relative:
                found.append(f"{module}:{item.line} imports {item.target} by an absolute name")
            if item.ours and not OPTIONAL.keys().isdisjoint((item.target, f"{item.target}.{item.name}")):
                found.append(f"{module}:{item.line} imports {item.target} itself")
            if item.ours and other != package and other not in LAYERS[package]:
                found.append(f"{module}:{item.line} imports {item.target}")
            allowed = THIRD_PARTY.get(package)
            foreign = not item.ours and other not in sys.stdlib_module_names
            if allowed is not None and foreign and other not in allowed and other != OPTIONAL.get(module):
                found.append(f"{module}:{item.line} imports {item.target}")
    return found


def record_violations(modules: Sources) -> list[str]:
    """Server-side modules that reach a client-only module, or take the type of true records."""
    found = []
    for module, source in modules.items():
        package, _, name = module.partition(".")
        if not name.startswith(SERVER.get(package, ())) or not name:
            continue
        found += [" → ".join(path) for path in _paths(module, modules) if path[-1] in CLIENT_ONLY]
        found += [
            f"{module}:{item.line} imports the type of true records"
            for item in imports(module, source)
            if item.ours and item.name == "Records"
        ]
    return found


def _paths(start: str, modules: Sources) -> list[tuple[str, ...]]:
    """The shortest chain of run-time imports from a module to every module that it reaches."""
    reached, queue = {start: (start,)}, [start]
    while queue:
        module = queue.pop(0)
        if module in CLIENT_ONLY:
            continue
        for item in imports(module, modules.get(module, "")):
            if not item.ours or item.typing_only:
                continue
            target = _origin(item, modules)
            if target not in reached:
                reached[target] = (*reached[module], target)
                queue.append(target)
    return list(reached.values())


def _origin(item: Import, modules: Sources) -> str:
    """The module that an import really uses: names that a package passes on belong to their own module."""
    if item.name is None:
        return item.target
    if f"{item.target}.{item.name}" in modules:
        return f"{item.target}.{item.name}"
    if item.target in LAYERS:
        for passed_on in imports(item.target, modules.get(item.target, "")):
            if passed_on.ours and passed_on.name == item.name:
                return _origin(passed_on, modules)
    return item.target


def randomness_violations(modules: Sources) -> list[str]:
    """Random numbers drawn anywhere but in the one module for them."""
    sourced = ("random", "secrets", "numpy.random", "os.urandom", "os.getrandom")
    found = []
    for module, source in modules.items():
        if module == RANDOMNESS:
            continue
        for item in imports(module, source):
            full = item.target if item.name is None else f"{item.target}.{item.name}"
            if not item.ours and not item.typing_only and _starts(full, sourced):
                found.append(f"{module}:{item.line} imports {full}")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and node.attr in {"random", "urandom", "getrandom"}:
                text = ast.unparse(node)
                if text in {"np.random", "numpy.random", "os.urandom", "os.getrandom"}:
                    found.append(f"{module}:{node.lineno} uses {text}")
    return found


def _starts(full: str, prefixes: tuple[str, ...]) -> bool:
    return any(full == prefix or full.startswith(prefix + ".") for prefix in prefixes)


# -- the code follows them ----------------------------------------------------------------------------------


RULES = [layer_violations, record_violations, randomness_violations]


@pytest.mark.parametrize("rule", RULES)
def test_the_code_follows_the_rule(rule):
    assert rule(sources()) == []


def test_every_package_and_both_halves_were_read():
    modules = sources()
    assert {module.split(".")[0] for module in modules} == set(LAYERS)
    assert not CLIENT_ONLY - set(modules)
    for package, names in SERVER.items():
        for name in names:
            assert any(module.startswith(f"{package}.{name}") for module in modules), f"{package}.{name}"
    assert RANDOMNESS in modules


# -- the rules find what is planted --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("mechanisms.pckv.pckv", "from ...schemas.reports import Report"),
        ("mechanisms.pckv.pckv", "import pyarrow as pa"),
        ("mechanisms.pckv.pckv", "def f():\n    import apache_beam"),
        ("mechanisms", "from ..transforms import Count"),
        ("mechanisms.pckv.pckv", "if TYPE_CHECKING:\n    import pyarrow"),
        ("schemas.reports", "from ..mechanisms import PCKVUE"),
        ("schemas.reports", "from .. import mechanisms"),
        ("transforms.count", "from ..pipelines import cli"),
        ("transforms.count", "from ldp_beam.errors import InputError"),
        ("transforms.count", "import ldp_beam.schemas"),
        ("transforms.count", "from schemas.reports import Report"),
        ("errors", "from .. import schemas"),
        ("errors", "import numpy"),
        ("engines.job_servers", "from ..transforms.count import CountReports"),
        ("engines.job_servers", "from ..mechanisms import Counts"),
        ("transforms.count", "from ..engines import job_server"),
        ("mechanisms.unary", "from numba import njit"),
        ("mechanisms.unary", "from . import loops"),
        ("mechanisms.loops", "import scipy"),
    ],
)
def test_layer_rule_finds(module, source):
    assert layer_violations({module: source})


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "mechanisms.pckv.pckv",
            "import math\nimport numpy as np\nfrom .data import Counts\nfrom ..errors import E",
        ),
        ("mechanisms.pckv.pckv", "from cryptography.hazmat.primitives.ciphers import Cipher"),
        ("mechanisms", "from .data import Counts"),
        ("mechanisms.loops", "from numba import njit"),
        ("pipelines.cli", "import click\nfrom .. import errors\nfrom ..transforms.count import C"),
    ],
)
def test_layer_rule_lets_pass(module, source):
    assert layer_violations({module: source}) == []


SCENE = {
    "schemas": "from .records import canonical_schema\nfrom .reports import report_schema",
    "schemas.records": "",
    "schemas.reports": "",
    "transforms.prepare": "from ..schemas.records import canonical_schema",
    "transforms.shared": "from .prepare import Preparer",
    "mechanisms": "from .data import Counts, Records",
    "mechanisms.data": "",
}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("transforms.count", "from ..schemas.records import canonical_schema"),
        ("transforms.count", "from ..schemas import canonical_schema"),
        ("transforms.count", "from ..schemas import records"),
        ("transforms.count", "def f():\n    from .prepare import Preparer"),
        ("transforms.estimate", "from .shared import thing"),
        ("transforms.publish", "from . import prepare"),
        ("transforms.report_files", "from ..mechanisms import Records"),
        ("transforms.count_blocks", "from .shared import thing"),
        ("schemas.manifest", "from .records import canonical_schema"),
        ("pipelines.aggregate", "from ..transforms.prepare import Preparer"),
    ],
)
def test_record_rule_finds(module, source):
    assert record_violations({**SCENE, module: source})


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("transforms.count", "from ..schemas.reports import report_schema\nfrom ..mechanisms import Counts"),
        ("transforms.count", "from ..schemas import report_schema"),
        ("transforms.perturb", "from .prepare import Preparer\nfrom ..mechanisms import Records"),
    ],
)
def test_record_rule_lets_pass(module, source):
    assert record_violations({**SCENE, module: source}) == []


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "import secrets",
        "from secrets import token_bytes",
        "from random import SystemRandom",
        "import numpy.random",
        "import numpy.random as nr",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy as np\ndef f():\n    return np.random.default_rng()",
        "import os\nx = os.urandom(8)",
        "from os import urandom",
    ],
)
def test_randomness_rule_finds(source):
    assert randomness_violations({"transforms.perturb": source})
    assert randomness_violations({RANDOMNESS: source}) == []


def test_randomness_rule_lets_a_type_pass():
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from numpy.random import Generator"
    assert randomness_violations({"mechanisms.populations": source}) == []


# -- what is loaded ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["ldp_beam.errors", "ldp_beam.mechanisms", "ldp_beam.mechanisms.populations"])
def test_the_mathematics_loads_nothing_heavy(module):
    """On a small client the import must not pull in the pipeline's packages, whoever imports them."""
    heavy = {"apache_beam", "pyarrow", "fastavro", "scipy", "pandas", "click", "rich"}
    code = f"import sys, {module}; print(*(name.split('.')[0] for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ldp_beam" in loaded
    assert not loaded & heavy
