"""The figures of an evaluation against numbers computed by hand, and what they say where they do not exist."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldp_beam.mechanisms.accuracy import (
    correlation,
    frequency_figures,
    mean_figures,
    pearson,
    precision,
    relative_error,
    top_keys,
)

NAN = float("nan")
NOBODY = np.zeros(4, dtype=bool)
TRUTH = np.array([0.5, 0.25, 0.2, 0.0])
ESTIMATE = np.array([0.4, 0.35, 0.2, 0.1])


def frequencies(estimate=ESTIMATE, truth=TRUTH, low=None, high=None, flagged=None):
    low = estimate - 0.1 if low is None else low
    high = estimate + 0.1 if high is None else high
    return frequency_figures(estimate, truth, low, high, NOBODY[: len(truth)] if flagged is None else flagged)


def test_figures_of_frequencies_by_hand():
    found = frequencies(low=np.array([0.3, 0.3, 0.1, 0.0]), high=np.array([0.45, 0.4, 0.3, 0.2]))
    assert found.why_undefined == {}
    assert found.values == pytest.approx(
        {
            "frequency_keys": 4,
            "frequency_mse": 0.03 / 4,  # 0.1² three times, one exact
            "frequency_log_mse": math.log10(0.0075),
            "frequency_l1": 0.3,
            "frequency_l2_squared": 0.03,
            "frequency_total_variation": 0.15,
            "frequency_relative_error": 0.2,  # 0.2, 0.4, 0; the last key has none
            "frequency_relative_error_top": 0.2,  # one key of four
            "frequency_coverage": 0.5,  # the third and the last
            "frequency_coverage_trusted": 0.5,
        }
    )


def test_flagged_keys_count_for_coverage_but_not_for_the_trusted_one():
    found = frequencies(
        low=np.array([0.3, 0.3, 0.1, 0.0]),
        high=np.array([0.45, 0.4, 0.3, 0.2]),
        flagged=np.array([False, True, False, False]),
    ).values
    assert found["frequency_coverage"] == 0.5
    assert found["frequency_coverage_trusted"] == pytest.approx(2 / 3)
    all_flagged = frequencies(flagged=np.ones(4, dtype=bool))
    assert all_flagged.values["frequency_coverage_trusted"] is None
    assert all_flagged.why_undefined == {"frequency_coverage_trusted": "every key is flagged"}


def test_figures_of_means_by_hand():
    truth, estimate = np.array([1.0, -1.0, NAN, 0.5]), np.array([0.5, -1.0, 0.3, NAN])
    found = mean_figures(estimate, truth, np.array([0, -1, -1, NAN]), np.array([1, -0.5, 1, NAN]), NOBODY)
    assert found.values == pytest.approx(
        {
            "mean_keys": 2,
            "mean_without_holders": 1,
            "mean_without_estimate": 1,
            "mean_mse": 0.125,
            "mean_log_mse": math.log10(0.125),
            "mean_l1": 0.5,
            "mean_l2_squared": 0.25,
            "mean_coverage": 1.0,
            "mean_coverage_trusted": 1.0,
        }
    )


def test_what_does_not_exist_is_named():
    none = np.full(4, NAN)
    nobody = mean_figures(ESTIMATE, none, none, none, NOBODY)
    assert nobody.values["mean_without_holders"] == 4
    assert {name for name, figure in nobody.values.items() if figure is None} == nobody.why_undefined.keys()
    assert nobody.why_undefined["mean_mse"] == "no key has both a true and an estimated figure"
    zero = frequencies(truth=np.zeros(4))
    assert zero.values["frequency_relative_error"] is None
    assert "0 or unknown" in zero.why_undefined["frequency_relative_error"]
    exact = frequencies(estimate=TRUTH)
    assert exact.values["frequency_mse"] == 0.0
    assert exact.why_undefined == {"frequency_log_mse": "the error is 0"}


def test_relative_errors_of_the_top_keys_are_those_of_the_most_frequent_tenth():
    truth = np.linspace(0.01, 0.4, 40)
    estimate = truth.copy()
    estimate[-4:] *= [1.1, 1.2, 0.7, 0.6]
    found = frequencies(estimate, truth, flagged=np.zeros(40, dtype=bool)).values
    assert found["frequency_relative_error"] == 0.0
    assert found["frequency_relative_error_top"] == pytest.approx(0.25)
    assert top_keys(truth).tolist() == [39, 38, 37, 36]
    assert top_keys(np.array([0.1, 0.3, 0.3, NAN]), 3).tolist() == [1, 2, 0]
    assert len(top_keys(np.zeros(11))) == 2


def test_correlation_by_hand():
    frequency, mean = np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 6.0])
    r = 4 / math.sqrt(2 * 14)  # covariance 4, squares 2 and 14
    assert pearson(frequency, mean) == pytest.approx(r)
    assert pearson(np.append(frequency, NAN), np.append(mean, 9.0)) == pytest.approx(r)
    found = correlation(frequency, mean, frequency, np.array([1.0, 2.0, 3.0]))
    assert found.values == pytest.approx({"correlation_true": 1.0, "correlation_estimated": r, "correlation_kept": r})
    opposite = correlation(frequency, -mean, frequency, mean)
    assert opposite.values["correlation_kept"] == pytest.approx(-1.0)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1 / 3])
def test_a_constant_column_has_no_correlation(constant):
    found = correlation(np.full(3, constant), np.arange(3.0), np.arange(3.0), np.arange(3.0))
    assert found.values == {"correlation_true": 1.0, "correlation_estimated": None, "correlation_kept": None}
    assert "constant" in found.why_undefined["correlation_kept"]
    assert pearson(np.array([0.1]), np.array([0.2])) is None
    uncorrelated = correlation(np.arange(4.0), np.arange(4.0), np.arange(4.0), np.array([1.0, -1.0, -1.0, 1.0]))
    assert uncorrelated.values["correlation_kept"] is None
    assert uncorrelated.why_undefined == {"correlation_kept": "the true correlation is 0"}


def test_precision_of_the_most_frequent():
    assert precision(ESTIMATE, TRUTH, 2) == 1.0
    assert precision(np.array([0.1, 0.4, 0.2, 0.3]), TRUTH, 2) == 0.5
    assert precision(ESTIMATE, TRUTH, 5) is None
    assert precision(ESTIMATE, TRUTH, 0) is None


def test_relative_errors_of_negative_figures_have_the_sign_taken_off():
    assert relative_error(np.array([-1.0, 3.0]), np.array([-2.0, -1.0])) == pytest.approx((0.5 + 4.0) / 2)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), max_size=8))
def test_correlation_is_never_nan_nor_beyond_one(rows):
    x, y = (np.array([row[j] for row in rows], dtype=np.float64) for j in (0, 1))
    found = pearson(x, y)
    assert found is None or -1.0 <= found <= 1.0
