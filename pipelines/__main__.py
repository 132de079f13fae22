"""`python -m ldp_beam.pipelines VERB …`: the same as `ldp-beam VERB …`."""

from .cli import main

main()
