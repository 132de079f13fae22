"""The mechanisms by name: what the command line lists and the collection definition may ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from ..errors import NotAvailableError, ParameterError, did_you_mean
from .attributes import Attributes
from .categorical.base import FrequencyOracle, SetOracle
from .categorical.grr import GRR, PSFOGRR, RR
from .categorical.hadamard import HadamardResponse, SHist
from .categorical.local_hashing import OLH
from .categorical.subset_selection import SubsetSelection
from .categorical.unary_encoding import OUE, PSFOOUE, SUE
from .padding.auto import AutoPadding
from .pckv.pckv import PCKVGRR, PCKVUE
from .privkv.kvue import KVUE
from .privkv.privkv import PrivKV
from .privkv.privkvm import PrivKVM, PrivKVMHarmony, PrivKVMMeanEst, PrivKVMPlus
from .privkv.rounds import MultiRound
from .protocol import Mechanism
from .repeated import Repeated
from .uldp.pum import PUM
from .uldp.urap import URAP
from .uldp.urr import URR
from .values.harmony import Harmony
from .values.meanest import MeanEst
from .values.percentiles import Percentiles

__all__ = ["MECHANISMS", "RESERVED", "Entry", "make_mechanism"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One mechanism as people read about it.

    Attributes:
        mechanism: its class.
        estimates: what it estimates.
        report_size: size of one report, in words.
        guarantee: what privacy it gives.
        source: where it was published.
        use: when to use it.
    """

    mechanism: type[Mechanism]
    estimates: str
    report_size: str
    guarantee: str
    source: str
    use: str = ""

    @property
    def name(self) -> str:
        """Name in the collection definition."""
        return self.mechanism.name

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(p for p in inspect.signature(self.mechanism).parameters)

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the parameters that have no default."""
        given = inspect.signature(self.mechanism).parameters.items()
        return tuple(name for name, one in given if one.default is inspect.Parameter.empty)

    @property
    def has_values(self) -> bool:
        """Whether records carry values."""
        return self.mechanism.has_values


_PAPER: Final = "Gu, Li, Cheng, Xiong, Cao: PCKV, USENIX Security 2020"
_SHARES: Final = "share of users with each symbol"
_WHOLE: Final = "epsilon-LDP for the whole record"
_CATEGORICAL: Final = (
    Entry(
        mechanism=RR,
        estimates=_SHARES,
        report_size="4 bytes",
        guarantee=_WHOLE,
        source="Warner: Randomized Response, JASA 1965",
        use="questions with two answers",
    ),
    Entry(
        mechanism=GRR,
        estimates=_SHARES,
        report_size="4 bytes",
        guarantee=_WHOLE,
        source="Kairouz, Bonawitz, Ramage: Discrete Distribution Estimation under Local Privacy, ICML 2016",
        use="small domains, up to about 3 e^epsilon symbols",
    ),
    Entry(
        mechanism=SUE,
        estimates=_SHARES,
        report_size="1 bit a symbol",
        guarantee=_WHOLE,
        source="Erlingsson, Pihur, Korolova: RAPPOR, CCS 2014",
        use="comparison with RAPPOR; oue has smaller errors",
    ),
    Entry(
        mechanism=OUE,
        estimates=_SHARES,
        report_size="1 bit a symbol",
        guarantee=_WHOLE,
        source="Wang, Blocki, Li, Jha: Locally Differentially Private Protocols, USENIX Security 2017",
        use="domains of some dozen to some thousand symbols",
    ),
    Entry(
        mechanism=OLH,
        estimates=_SHARES,
        report_size="20 bytes",
        guarantee=_WHOLE,
        source="Wang, Blocki, Li, Jha: Locally Differentially Private Protocols, USENIX Security 2017",
        use="large domains at a large epsilon; the errors of oue, short reports, slow counting",
    ),
    Entry(
        mechanism=SubsetSelection,
        estimates=_SHARES,
        report_size="1 bit a symbol",
        guarantee=_WHOLE,
        source="Ye, Barg: Optimal Schemes for Discrete Distribution Estimation, IEEE Trans. Information Theory 2018",
        use="domains of some dozen to some hundred symbols where the last per cent of error counts",
    ),
    Entry(
        mechanism=SHist,
        estimates=_SHARES,
        report_size="5 bytes",
        guarantee=_WHOLE,
        source="Bassily, Smith: Local, Private, Efficient Protocols for Succinct Histograms, STOC 2015",
        use="large domains at an epsilon up to about 1; fast at both ends",
    ),
    Entry(
        mechanism=HadamardResponse,
        estimates=_SHARES,
        report_size="4 bytes",
        guarantee=_WHOLE,
        source="Acharya, Sun, Zhang: Hadamard Response, AISTATS 2019",
        use="as shist, with the report in one number",
    ),
    Entry(
        mechanism=PSFOGRR,
        estimates="share of users whose set holds each item",
        report_size="4 bytes",
        guarantee="epsilon-LDP for the whole set",
        source="Wang, Li, Jha: Locally Differentially Private Frequent Itemset Mining, IEEE S&P 2018",
        use="item sets over small domains, or with a large padding",
    ),
    Entry(
        mechanism=PSFOOUE,
        estimates="share of users whose set holds each item",
        report_size="1 bit an item",
        guarantee="epsilon-LDP for the whole set",
        source="Wang, Li, Jha: Locally Differentially Private Frequent Itemset Mining, IEEE S&P 2018",
        use="item sets over larger domains",
    ),
)
_VALUES: Final = (
    Entry(
        mechanism=Harmony,
        estimates="mean of each key's values, which every user holds",
        report_size="5 bytes",
        guarantee=_WHOLE,
        source="Nguyen et al.: Collecting and Analyzing Data from Smart Device Users, arXiv 1606.05053",
        use="one number or a vector of numbers from everybody; the shortest reports",
    ),
    Entry(
        mechanism=MeanEst,
        estimates="mean of each key's values, which every user holds",
        report_size="1 bit a key",
        guarantee=_WHOLE,
        source="Duchi, Jordan, Wainwright: Minimax Optimal Procedures for Locally Private Estimation, JASA 2018",
        use="a vector of numbers from everybody; comparison with harmony",
    ),
    Entry(
        mechanism=Percentiles,
        estimates="frequency, mean, percentiles, minimum and maximum of each key",
        report_size="1 bit a key and bin, or as the oracle that is chosen",
        guarantee=_WHOLE,
        source="Ye, Hu, Meng, Zheng: PrivKV, IEEE S&P 2019, names the extension; the details are ours",
        use="medians and the spread of values, where the mean is not enough",
    ),
)
_BOTH: Final = "frequency and mean of each key"
_ALL_ROUNDS: Final = "epsilon-LDP for the whole record, over all rounds together"
_PRIVKV_PAPER: Final = "Ye, Hu, Meng, Zheng: PrivKV, IEEE S&P 2019"
_DRAWN_KEY: Final = (
    Entry(
        mechanism=PrivKV,
        estimates=_BOTH,
        report_size="5 bytes",
        guarantee=_WHOLE,
        source=_PRIVKV_PAPER,
        use="comparison; pckv-ue has smaller errors. Takes records of any size without a padding",
    ),
    Entry(
        mechanism=PrivKVM,
        estimates=_BOTH,
        report_size="5 bytes a round",
        guarantee=_ALL_ROUNDS,
        source=_PRIVKV_PAPER,
        use="frequent keys at a large epsilon, where people can be asked several times",
    ),
    Entry(
        mechanism=PrivKVMPlus,
        estimates=_BOTH,
        report_size="5 bytes a round",
        guarantee=_ALL_ROUNDS,
        source=_PRIVKV_PAPER,
        use="as privkvm, where a round has a price: ends by itself and says what was not spent",
    ),
    Entry(
        mechanism=PrivKVMHarmony,
        estimates=_BOTH,
        report_size="5 bytes a round",
        guarantee=_ALL_ROUNDS,
        source=f"{_PRIVKV_PAPER}, section 6; Nguyên et al.: Harmony, arXiv 1606.05053",
        use="comparison with privkvm",
    ),
    Entry(
        mechanism=PrivKVMMeanEst,
        estimates=_BOTH,
        report_size="5 bytes a round",
        guarantee=_ALL_ROUNDS,
        source=f"{_PRIVKV_PAPER}, section 6; Duchi, Jordan, Wainwright: MeanEst, JASA 2018",
        use="comparison with privkvm; for single values the same law as privkvm-harmony",
    ),
    Entry(
        mechanism=KVUE,
        estimates=_BOTH,
        report_size="5 bytes",
        guarantee=_WHOLE,
        source="Sun, Zhao, Ye, Feng, Wang, Bai: Conditional Analysis for Key-Value Data, arXiv 1907.05014",
        use="comparison; small domains at a large epsilon",
    ),
)
_ULDP_PAPER: Final = "Murakami, Kawamoto: Utility-Optimized LDP Mechanisms, USENIX Security 2019"
_SENSITIVE_ONLY: Final = "epsilon-ULDP for the whole record: epsilon-LDP for whoever holds a sensitive key"
_UTILITY_OPTIMISED: Final = (
    Entry(
        mechanism=URR,
        estimates=_SHARES,
        report_size="4 bytes",
        guarantee=_SENSITIVE_ONLY,
        source=f"{_ULDP_PAPER}, section 4.1",
        use="few sensitive symbols among many, or a large epsilon",
    ),
    Entry(
        mechanism=URAP,
        estimates=_SHARES,
        report_size="1 bit a sensitive symbol, and 4 bytes",
        guarantee=_SENSITIVE_ONLY,
        source=f"{_ULDP_PAPER}, section 4.2",
        use="many sensitive symbols, or a small epsilon",
    ),
    Entry(
        mechanism=PUM,
        estimates=_SHARES,
        report_size="as urr or urap, with one more symbol for each tag",
        guarantee="epsilon-ULDP for the whole record: epsilon-LDP for whoever holds what is sensitive to her",
        source=f"{_ULDP_PAPER}, section 5",
        use="what is sensitive differs from person to person",
    ),
)
_ENTRIES: Final = (
    Entry(
        mechanism=PCKVUE,
        estimates="frequency and mean of each key",
        report_size="2 bits a key",
        guarantee="epsilon-LDP for the whole record",
        source=_PAPER,
        use="key-value data over up to some thousand keys",
    ),
    Entry(
        mechanism=PCKVGRR,
        estimates="frequency and mean of each key",
        report_size="5 bytes",
        guarantee="epsilon-LDP for the whole record",
        source=_PAPER,
        use="key-value data over few keys, at a large epsilon, or with a large padding; the shortest reports",
    ),
    *_CATEGORICAL,
    *_VALUES,
    *_DRAWN_KEY,
    *_UTILITY_OPTIMISED,
)

#: Mechanisms of this version by name.
MECHANISMS: Final[Mapping[str, Entry]] = MappingProxyType({entry.name: entry for entry in _ENTRIES})

#: A padding that the users' answers decide, and what may be said of how.
AUTO: Final = "auto"
_AUTO_FIELDS: Final = ("share", "cap", "rule", "fallback", "exponent", "frequencies")

#: Names that belong to mechanisms which this version does not have.
RESERVED: Final[tuple[str, ...]] = ()


def make_mechanism(name: str, **parameters: Decimal | int | float | str) -> Mechanism:
    """Make a mechanism from its name and parameters.

    Args:
        name: a name of `MECHANISMS`.
        **parameters: epsilon, keys, padding, allocation, …; and `reports`, the number of reports of each user, which
            share epsilon, for all mechanisms that do not ask in rounds; and `attributes`, ("split" or "sampled",
            numbers of values), for all that ask for one symbol. With padding "auto" also what `AutoPadding` takes.

    Raises:
        ParameterError: for an unknown name, an unknown or missing parameter, or a value that is not allowed.
        NotAvailableError: for a name or value that is reserved for a later version.
    """
    if name in RESERVED:
        raise NotAvailableError.of(f"mechanism = {name!r}", instead=f"Use one of: {', '.join(MECHANISMS)}.")
    if name not in MECHANISMS:
        raise ParameterError(f"mechanism is {name!r}. {did_you_mean(str(name), MECHANISMS)}")
    entry = MECHANISMS[name]
    if "reports" in parameters and "reports" not in entry.parameters:
        return _repeated(entry, **parameters)
    if "attributes" in parameters:
        return _of_attributes(entry, **parameters)
    if parameters.get("padding") == AUTO and "padding" in entry.parameters:
        return _auto_padded(name, **parameters)
    for given in parameters:
        if given not in entry.parameters:
            raise ParameterError(f"{name} has no parameter {given!r}. {did_you_mean(given, entry.parameters)}")
    for wanted in entry.required:
        if wanted not in parameters:
            raise ParameterError(f"{name} needs {wanted!r}, which is missing; there is no default for it.")
    build: Callable[..., Mechanism] = entry.mechanism  # the constructor checks every value itself
    return build(**parameters)


def _padded(name: str, parameters: Mapping[str, Any], padding: int) -> Mechanism:
    return make_mechanism(name, **parameters, padding=padding)


def _auto_padded(name: str, **parameters: Any) -> AutoPadding:
    """Make the two questions of padding "auto"; the function that makes the main one can be pickled."""
    del parameters["padding"]
    about = {field: parameters.pop(field) for field in _AUTO_FIELDS if field in parameters}
    return AutoPadding(partial(_padded, name, parameters), **about)


def _of_attributes(entry: Entry, **parameters: Any) -> Mechanism:
    """Make one mechanism for each attribute."""
    if not issubclass(entry.mechanism, FrequencyOracle) or issubclass(entry.mechanism, SetOracle):
        raise ParameterError(f"{entry.name} does not ask about several attributes; use grr, oue or another oracle.")
    (mode, sizes), epsilon, keys = (parameters.pop(name, None) for name in ("attributes", "epsilon", "keys"))
    if epsilon is None or keys != sum(sizes):
        raise ParameterError(f"attributes of {sizes} values need 'epsilon', and 'keys' as many as they have together.")
    return Attributes(
        lambda each, size: make_mechanism(entry.name, epsilon=each, keys=size, **parameters),
        epsilon=epsilon,
        mode=mode,
        sizes=sizes,
    )


def _repeated(entry: Entry, **parameters: Any) -> Mechanism:
    """Make a mechanism that each user answers several times."""
    if issubclass(entry.mechanism, MultiRound):
        raise ParameterError(f"{entry.name} asks in rounds and has no 'reports'; leave the field out.")
    if parameters.get("padding") == AUTO:
        raise ParameterError("Several reports of each user need a padding that is a whole number, not 'auto'.")
    reports, epsilon = parameters.pop("reports"), parameters.pop("epsilon", None)
    if epsilon is None:
        raise ParameterError(f"{entry.name} needs 'epsilon', which is missing; there is no default for it.")
    return Repeated(
        lambda each: make_mechanism(entry.name, epsilon=each, **parameters), epsilon=epsilon, reports=reports
    )
