from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

__version__: str
boolean: Any
int8: Any
int32: Any
int64: Any
uint32: Any
uint64: Any
void: Any

def njit(*signature: Any, **options: Any) -> Callable[[_F], _F]: ...

class config:
    DISABLE_JIT: bool

class types:
    @staticmethod
    def Array(dtype: Any, ndim: int, layout: str, readonly: bool = ...) -> Any: ...
