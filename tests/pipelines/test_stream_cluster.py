"""Where a stream's workers may be, and what its job is called."""

from pathlib import Path

import pytest
from ldp_beam.errors import InputError, LdpBeamError, NotAvailableError
from ldp_beam.mechanisms import Secret
from ldp_beam.pipelines.engine_target import Target
from ldp_beam.pipelines.stream_cluster import check_placement, job_name
from ldp_beam.transforms.memo import Memo
from ldp_beam.transforms.slice_records import Clients

SECRET = Secret.from_seed(1)


def outside(engine):
    return Target(engine=engine, environment="EXTERNAL", config="host:1")


@pytest.mark.parametrize(
    ("target", "clients", "kind", "said"),
    [
        (outside("prism"), None, NotAvailableError, "watermark of one partition"),
        (outside("flink"), Clients(secret=SECRET, charge=object()), InputError, "--ledger with"),
        (outside("flink"), Clients(secret=SECRET, memo=Memo(path="memo", cap=2)), InputError, "--memoise with"),
    ],
)
def test_workers_elsewhere_are_refused_where_they_would_give_other_results(target, clients, kind, said):
    with pytest.raises(LdpBeamError, match=said) as refused:
        check_placement(target, clients)
    assert type(refused.value) is kind


@pytest.mark.parametrize(
    ("target", "clients"),
    [
        (outside("flink"), None),
        (outside("flink"), Clients(secret=SECRET)),
        (Target(engine="prism", environment="LOOPBACK"), Clients(secret=SECRET, charge=object())),
    ],
)
def test_workers_that_give_the_same_results_are_taken(target, clients):
    check_placement(target, clients)


def test_a_job_is_named_after_its_folder_and_after_nothing_else():
    one, other = Path("/shared/one"), Path("/shared/other")
    assert job_name(None, one) == job_name(None, one) != job_name(None, other)
    assert job_name("mine", one).startswith("mine-")
    assert job_name("mine", one).rpartition("-")[2] == job_name(None, one).rpartition("-")[2]
