"""Output appears complete or not at all, and nothing that exists is lost."""

import pytest
from ldp_beam.errors import InputError
from ldp_beam.pipelines.output import OutputFolder


def test_published_folder_has_the_wanted_name_and_no_staging_is_left(tmp_path):
    with OutputFolder(tmp_path / "out") as folder:
        (folder.staging / "counts.parquet").write_text("x")
        assert not (tmp_path / "out").exists()
        folder.publish()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "counts.parquet").read_text() == "x"


def test_a_failed_run_leaves_nothing(tmp_path):
    def fail():
        with OutputFolder(tmp_path / "out") as folder:
            (folder.staging / "counts.parquet").write_text("x")
            raise RuntimeError("worker died")

    with pytest.raises(RuntimeError, match="worker died"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_leaves_an_earlier_result_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("old")
    with OutputFolder(tmp_path / "out", overwrite=True) as folder:
        (folder.staging / "manifest.json").write_text("new")
    assert (tmp_path / "out" / "manifest.json").read_text() == "old"


def test_overwrite_replaces_the_whole_result(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "estimates.csv").write_text("old")
    with OutputFolder(tmp_path / "out", overwrite=True) as folder:
        (folder.staging / "estimates.json").write_text("new")
        folder.publish()
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["estimates.json"]


@pytest.mark.parametrize(
    ("present", "overwrite", "message"),
    [
        ("manifest.json", False, "--overwrite"),
        ("thesis.docx", True, "did not write"),
        ("thesis.docx", False, "did not write"),
        ("records.parquet", True, "did not write"),
    ],
)
def test_what_is_in_the_way_is_refused(tmp_path, present, overwrite, message):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / present).write_text("x")
    with pytest.raises(InputError, match=message):
        OutputFolder(tmp_path / "out", overwrite=overwrite)
    assert (tmp_path / "out" / present).read_text() == "x"


def test_a_file_or_a_store_whose_client_is_not_installed_is_no_output_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a folder"):
        OutputFolder(tmp_path / "file", overwrite=True)
    with pytest.raises(InputError, match=r"ldp-beam\[gcs\]"):
        OutputFolder("gs://bucket/out")
