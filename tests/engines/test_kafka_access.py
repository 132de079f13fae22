"""A broker that asks for TLS and a login: the whole loop through it, and what is told where one does not get in."""

import json
import time
import uuid

import pytest

pytest.importorskip("confluent_kafka")

from ldp_beam.schemas.kafka_config import KafkaConfig
from ldp_beam.transforms.kafka_client import read_all

from tests.engines.secure_broker import PLAIN, SCRAM

pytestmark = pytest.mark.engine

PEOPLE = ("--population", "gauss", "--users", "500", "--keys", "3", "--pairs-per-user", "2")
WRONG = "a password that is wrong"


@pytest.fixture
def secured(broker):
    return broker.secured


@pytest.fixture
def config(tmp_path):
    """Return a function that writes settings to a file."""

    def write(settings, name="kafka.properties"):
        path = tmp_path / name
        if path.suffix == ".toml":
            path.write_text("".join(f'"{name}" = {json.dumps(value)}\n' for name, value in settings.items()))
        else:
            path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    return write


def test_records_reports_and_results_pass_through_tls_and_a_login(require_engine, secured, config, run_json, tmp_path):
    """`simulate --to` logs in by SCRAM with TOML, `stream` by PLAIN with lines; the results go back to the broker."""
    require_engine("prism")
    name = f"t-{uuid.uuid4().hex}"
    records, results = secured.topic(name), secured.topic(f"{name}-results")
    scram, plain = config(secured.access(SCRAM), "simulate.toml"), config(secured.access(PLAIN))
    definition, out = tmp_path / "made.toml", tmp_path / "out"
    run_json(
        *("simulate", *PEOPLE, "--to", records, "--kafka-config", scram, "--collection-to", definition),
        *("--start", "2026-11-30T12:00:00Z", "--span", "2h"),
    )
    manifest = run_json(
        *("stream", "--records", "--seed", "1", "--collection", definition, "--source", records, "--drain"),
        *("--window", "1h", "--allowed-lateness", "0s", "--output", out, "--output", results, "--kafka-config", plain),
    )
    assert (manifest["records"]["users"], manifest["stream"]["final_windows"]) == (500, 2)
    told = [json.loads(value) for value in read_all(results, KafkaConfig(secured.access(SCRAM)))]
    assert [one["window_start"] for one in told] == ["2026-11-30T12:00:00Z", "2026-11-30T13:00:00Z"]
    kept = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    assert not any(PLAIN["sasl.password"].encode() in content for content in kept)


@pytest.mark.parametrize(
    ("login", "changed", "code", "said"),
    [
        (PLAIN, {"sasl_password": WRONG}, 2, ("refuses the login", "sasl.password in --kafka-config")),
        (SCRAM, {"sasl_password": WRONG}, 2, ("refuses the login", "sasl.password in --kafka-config")),
        (PLAIN, {"ssl_ca_location": "stranger.pem"}, 2, ("No secure connection", "ssl.ca.location names")),
        (
            {},
            {"security_protocol": None, "ssl_ca_location": None},
            1,
            ("answers as a broker does", "security.protocol=plaintext", "SASL_SSL"),
        ),
    ],
    ids=["wrong password", "wrong password of SCRAM", "unknown authority", "no TLS"],
)
def test_who_does_not_get_in_is_told_why_within_seconds(
    secured, config, run, define, tmp_path, login, changed, code, said
):
    """Every command says which topic, why and what to change; nobody prints a password."""
    if changed.get("ssl_ca_location"):
        changed = {"ssl_ca_location": str(secured.folder / changed["ssl_ca_location"])}
    topic, settings = secured.topic("t-nobody"), config(secured.access(login, **changed))
    stream = ("stream", "--collection", define(mechanism="pckv-grr"), "--window", "1h", "--allowed-lateness", "0s")
    (tmp_path / "incoming").mkdir()
    for given in (
        ("simulate", *PEOPLE, "--to", topic),
        (*stream, "--source", topic, "--output", tmp_path / "out"),
        (*stream, "--source", tmp_path / "incoming", "--output", tmp_path / "out", "--output", topic),
    )[: 3 if code == 2 else 1]:
        began = time.monotonic()
        ended, out, err = run(*given, "--kafka-config", settings)
        told = " ".join(err.split())
        assert (ended, out) == (code, ""), told
        assert time.monotonic() - began < 60
        for part in (str(topic), *said):
            assert part in told
        for secret in (WRONG, PLAIN["sasl.password"], SCRAM["sasl.password"], "Traceback"):
            assert secret not in told
