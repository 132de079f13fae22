"""Addresses of topics, and the file of settings: strict, and silent about secrets."""

import pytest
from ldp_beam.errors import InputError
from ldp_beam.schemas.kafka_config import KafkaAddress, KafkaConfig, is_kafka


@pytest.mark.parametrize(
    ("address", "servers", "topic"),
    [
        ("kafka://localhost:9092/reports", "localhost:9092", "reports"),
        ("kafka://broker/a.b_c-D", "broker:9092", "a.b_c-D"),
        ("kafka://a:1,b.example:2,[::1]:3/t", "a:1,b.example:2,[::1]:3", "t"),
    ],
)
def test_addresses(address, servers, topic):
    assert is_kafka(address)
    found = KafkaAddress.parse(address)
    assert (found.servers, found.topic) == (servers, topic)
    assert KafkaAddress.parse(str(found)) == found


@pytest.mark.parametrize(
    "address",
    ["kafka://", "kafka://host:9092", "kafka://host:9092/", "kafka://host/a/b", "kafka:///t", "kafka://h/..",
     "kafka://h:port/t", "kafka://h,,i/t", "http://h/t", "kafka://h/" + "t" * 250],
)  # fmt: skip
def test_what_is_no_address(address):
    with pytest.raises(InputError, match="kafka://HOST:PORT/TOPIC"):
        KafkaAddress.parse(address)


WANTED = {"security.protocol": "SASL_SSL", "sasl.password": "geheim=1", "ssl.ca.location": "/ca.pem", "retries": "3"}


def test_both_forms_of_the_file_say_the_same(tmp_path):
    lines = tmp_path / "kafka.properties"
    lines.write_text("# TLS\n\n" + "".join(f"{name} = {value}\n" for name, value in WANTED.items()))
    toml = tmp_path / "kafka.toml"
    toml.write_text(
        'security.protocol = "SASL_SSL"\nsasl.password = "geheim=1"\n"ssl.ca.location" = "/ca.pem"\nretries = 3\n'
    )
    assert KafkaConfig.load(lines).settings == KafkaConfig.load(toml).settings == WANTED
    assert KafkaConfig.given(None).settings == {}


def test_settings_are_not_shown(tmp_path):
    path = tmp_path / "kafka.properties"
    path.write_text("sasl.password=geheim")
    assert "geheim" not in repr(KafkaConfig.load(path))


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("k.properties", "sasl.password", "line 1"),
        ("k.properties", "=x", "line 1"),
        ("k.toml", "a = ", "no TOML"),
        ("k.toml", "a.b = [1]", "'a.b'"),
        ("k.toml", "a = 1.5", "'a'"),
        ("k.properties", "enable.auto.commit=true", "'enable.auto.commit'"),
        ("k.toml", 'bootstrap.servers = "x"', "'bootstrap.servers'"),
    ],
)
def test_what_is_no_file_of_settings(name, text, part, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=part.replace(".", r"\.")):
        KafkaConfig.load(path)
    with pytest.raises(InputError, match="cannot be read"):
        KafkaConfig.load(tmp_path / "absent")
