"""Our transforms inside Beam YAML: the example's pipeline, and each transform in small ones."""

import json
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from ldp_beam.errors import InputError
from ldp_beam.pipelines import beam_yaml

yaml = pytest.importorskip("yaml")
main = pytest.importorskip("apache_beam.yaml.main")
yaml_provider = pytest.importorskip("apache_beam.yaml.yaml_provider")
yaml_transform = pytest.importorskip("apache_beam.yaml.yaml_transform")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "beam_yaml"
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:apache_beam"),
    pytest.mark.filterwarnings("ignore::FutureWarning:apache_beam"),
]


@pytest.fixture
def ratings(tmp_path):
    """3,000 people in a CSV file of pairs: everybody rates apples with 5, every second one bananas with 2."""
    path = tmp_path / "ratings.csv"
    lines = ["user_id,key,value"]
    for i in range(3000):
        lines.append(f"u{i},apple,5")
        if i % 2:
            lines.append(f"u{i},banana,2")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_example_runs(ratings, tmp_path):
    names = {
        "records": str(ratings),
        "result": str(tmp_path / "estimates"),
        "collection": str(EXAMPLE / "collection.toml"),
    }
    pipeline = f"--yaml_pipeline_file={EXAMPLE / 'pipeline.yaml'}"
    main.run(["--runner=FnApiRunner", pipeline, f"--jinja_variables={json.dumps(names)}"])
    (file,) = tmp_path.glob("estimates-*")
    rows = {row["key"]: row for row in map(json.loads, file.read_text().splitlines())}
    assert set(rows) == {"apple", "banana", "cherry"}
    for key, share, mean in (("apple", 1.0, 5.0), ("banana", 0.5, 2.0)):
        row = rows[key]
        assert row["n"] == 3000
        assert abs(row["frequency_raw"] - share) < 7 * row["frequency_se"]
        assert abs(row["mean_raw"] - mean) < 7 * row["mean_se"]


PROVIDERS = """
- type: python
  config: {}
  transforms:
    LdpCollect: ldp_beam.pipelines.beam_yaml.Collect
    LdpPerturb: ldp_beam.pipelines.beam_yaml.Perturb
    LdpEstimate: ldp_beam.pipelines.beam_yaml.Estimate
"""
HALVES = """
type: chain
transforms:
  - type: Create
    config:
      elements:
        - {{user_id: ann, items: [{{key: apple, value: 0.5}}]}}
        - {{user_id: bob, items: [{{key: banana, value: -1.0}}, {{key: apple, value: 1.0}}]}}
  - type: LdpPerturb
    config: {{collection: "{path}", seed: 3}}
  - type: LdpEstimate
    config: {{collection: "{path}", private: false}}
"""


@pytest.mark.parametrize("mechanism", ["pckv-ue", "pckv-grr"])
def test_the_halves_pass_reports_as_rows(define, mechanism):
    text = HALVES.format(path=define(mechanism=mechanism))
    providers = yaml_provider.parse_providers(".", yaml.safe_load(PROVIDERS))
    with beam.Pipeline(runner=FnApiRunner()) as p:
        rows = p | yaml_transform.YamlTransform(text, providers=providers)
        found = rows | beam.Map(lambda row: (row.key, row.n))
        assert_that(found, equal_to([("apple", 2), ("banana", 2), ("cherry", 2)]))


def rows_of(*fields):
    return beam.Create([beam.Row(**dict.fromkeys(fields, "x"))])


def test_a_missing_column_is_named(define):
    p = beam.Pipeline(runner=FnApiRunner())
    with pytest.raises(InputError, match="no column 'value'"):
        _ = p | rows_of("user_id", "key", "valu") | beam_yaml.Collect(str(define()))


def test_ids_must_be_texts_or_whole_numbers():
    assert beam_yaml._id_of(7) == "7"
    for wrong in (None, True, 1.5):
        with pytest.raises(InputError, match="user id"):
            beam_yaml._id_of(wrong)
