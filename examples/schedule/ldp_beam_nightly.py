"""A DAG of Airflow 3: every night count the reports that have come, estimate the last 30 days, and draw them.

Put this file into the DAG folder. The Airflow variable `ldp_beam_folder` names the folder that holds `collection.toml`
and `reports/`; `ldp-beam` must be on the path of the workers. A task that failed may be run again at any time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

FOLDER = "{{ var.value.get('ldp_beam_folder', '/srv/ldp-beam') }}"
#: The day before the run; a run that is repeated later is still about its own days.
UNTIL = "{{ macros.ds_add(dag_run.run_after | ds, -1) }}"
SINCE = "{{ macros.ds_add(dag_run.run_after | ds, -30) }}"

AGGREGATE = f"""
ldp-beam aggregate --collection collection.toml --input 'reports/*/*.parquet' --counts-store store \
    --since {SINCE} --until {UNTIL} --max-gaps 0 --max-rejects 0.01 --output result --overwrite --json
"""
OVER_TIME = f"""
ldp-beam aggregate --collection collection.toml --counts-store store --since {SINCE} --until {UNTIL} --by day \
    --output over-time --overwrite --json > /dev/null &&
ldp-beam report --input over-time --output over-time.html --overwrite --json
"""

with DAG(
    dag_id="ldp_beam_nightly",
    description="Counts of yesterday's reports, estimates of the last 30 days",
    schedule="15 3 * * *",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10)},
    tags=["ldp-beam"],
) as dag:
    aggregate = BashOperator(task_id="aggregate", bash_command=AGGREGATE, cwd=FOLDER)
    over_time = BashOperator(task_id="over_time", bash_command=OVER_TIME, cwd=FOLDER)
    aggregate >> over_time
