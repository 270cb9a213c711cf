"""The error tree. Every message names the thing that is wrong and the way out.

::

    MoescopeError
    ├── UsageError                 wrong use by a person: exit code 2
    │   ├── SettingError           an unknown setting, or a value it cannot take
    │   ├── PortError              a port that cannot be listened on
    │   ├── DataDirectoryError     a data directory that cannot be used, or that another server owns
    │   ├── MissingExtraError      a part of moescope whose packages are not installed
    │   ├── RecordingError         a file that is no recording of experts, or does not fit the others
    │   ├── PlanError              rules that no plan of replicas can keep
    │   ├── ProtocolError          a readiness protocol that cannot be read; lists every line that is wrong
    │   ├── AlertRuleError         a file of SQL alert rules, or of their tests, that cannot be used
    │   └── AlertStateError        alert state that this version cannot read, or that another process owns
    ├── ShapeError                 an array, layer or expert that does not fit the model's shape
    │   └── PlacementError         a placement that does not cover the model
    ├── UnknownMetricError         a name that the registry lacks
    ├── StoreError                 the store cannot answer
    │   ├── StoreUnavailableError  nobody answers at the DSN; worth trying again
    │   ├── QueueFullError         more requests wait than the settings allow; worth trying again soon
    │   ├── RequestRefusedError    the store refuses the rows of requests for good; they are set aside
    │   ├── MigrationError         the schema is missing, newer, or was edited after its release
    │   └── QueryError             the store refused a query; carries ClickHouse's code and name
    ├── RejectedPointError         a point that cannot be stored; the rest of its batch can
    ├── MalformedRequestError      a request body that is no OTLP
    │   └── RequestTooLargeError   a request body beyond the settings' limit
    ├── UnauthenticatedError       a request without the token that the server asks for
    ├── PageError                  an engine's /metrics page that cannot be read; worth trying again
    ├── AlertSourceError           who evaluates alert rules gives no answer; worth trying again
    └── EngineNotSupportedError    an engine version or kernel that the hook does not understand
"""

from __future__ import annotations


class MoescopeError(Exception):
    """Root of everything that moescope raises on purpose."""

    exit_code = 1
    retryable = False


class UsageError(MoescopeError):
    """Wrong use by a person; the message says what to do instead."""

    exit_code = 2


class SettingError(UsageError):
    """A setting that does not exist, or a value that it cannot take."""


class PortError(UsageError):
    """A port that cannot be listened on."""


class DataDirectoryError(UsageError):
    """A data directory that cannot be used, or that another server owns."""


class MissingExtraError(UsageError):
    """A part of moescope whose packages are not installed."""

    def __init__(self, part: str, extra: str) -> None:
        super().__init__(
            f"{part} needs packages that are not installed. Run: pip install 'moescope[{extra}]'"
        )
        self.extra = extra


class RecordingError(UsageError):
    """A file that is no recording of experts, or does not fit the others; the message names it."""


class PlanError(UsageError):
    """Rules that no plan of replicas can keep; the message names the rule and the way out."""


class ProtocolError(UsageError):
    """A readiness protocol that cannot be read; the message lists every line that is wrong."""


class AlertRuleError(UsageError):
    """A file of SQL alert rules, or of their tests, that cannot be used; names file, group and rule."""


class AlertStateError(UsageError):
    """A file of alert state that this version cannot read, or that another process owns."""


class ShapeError(MoescopeError):
    """An array, layer or expert that does not fit the model's shape."""


class PlacementError(ShapeError):
    """A placement that does not cover the model."""


class UnknownMetricError(MoescopeError):
    """A metric name that the registry lacks."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no metric named {name!r} in the registry; docs/metrics.md lists them all")
        self.name = name


class StoreError(MoescopeError):
    """The store cannot answer."""


class StoreUnavailableError(StoreError):
    """Nobody answers at the DSN. Worth trying again."""

    retryable = True


class QueueFullError(StoreError):
    """More requests wait than the settings allow. Worth trying again after ``retry_after_seconds``."""

    retryable = True

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RequestRefusedError(StoreError):
    """The store refuses the rows of requests for good. ``digests`` says of which; others are stored."""

    def __init__(self, message: str, *, digests: frozenset[bytes]) -> None:
        super().__init__(message)
        self.digests = digests


class MigrationError(StoreError):
    """The schema is missing, newer than this version, or was edited after its release."""


class QueryError(StoreError):
    """The store refused a query."""

    def __init__(self, message: str, *, code: int | None = None, name: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.name = name


class RejectedPointError(MoescopeError):
    """A point that cannot be stored; ``reason`` is a short word for a counter."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class MalformedRequestError(MoescopeError):
    """A request body that is no OTLP."""


class RequestTooLargeError(MalformedRequestError):
    """A request body beyond the settings' limit."""


class UnauthenticatedError(MoescopeError):
    """A request without the token that the server asks for."""


class PageError(MoescopeError):
    """An engine's ``/metrics`` page that cannot be read; ``reason`` is a short word. Worth trying again."""

    retryable = True

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class AlertSourceError(MoescopeError):
    """Who evaluates alert rules, or an Alertmanager, gives no answer. Worth trying again."""

    retryable = True

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class EngineNotSupportedError(MoescopeError):
    """An engine version or kernel that the hook does not understand; serving goes on without it."""
