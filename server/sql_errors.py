"""Errors of the SQL endpoint in ClickHouse's own words, codes and HTTP statuses."""

from __future__ import annotations

from typing import Final

from moescope.schemas.errors import QueryError

# What a ClickHouse server answers with, by the name of the error; 500 where it is not listed.
_STATUS_BY_NAME: Final[dict[str, int]] = {
    name: status
    for status, names in {
        400: (
            "BAD_ARGUMENTS CANNOT_COMPILE_REGEXP CANNOT_PARSE_TEXT CANNOT_PARSE_ESCAPE_SEQUENCE "
            "CANNOT_PARSE_QUOTED_STRING CANNOT_PARSE_DATE CANNOT_PARSE_DATETIME CANNOT_PARSE_NUMBER "
            "CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING CANNOT_PARSE_IPV4 CANNOT_PARSE_IPV6 CANNOT_PARSE_UUID "
            "CANNOT_PARSE_INPUT_ASSERTION_FAILED DUPLICATE_COLUMN ILLEGAL_COLUMN THERE_IS_NO_COLUMN "
            "UNKNOWN_ELEMENT_IN_AST UNKNOWN_TYPE_OF_AST_NODE TOO_DEEP_AST TOO_BIG_AST "
            "UNEXPECTED_AST_STRUCTURE SYNTAX_ERROR INCORRECT_DATA TYPE_MISMATCH "
            "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE"
        ),
        403: "UNKNOWN_USER WRONG_PASSWORD AUTHENTICATION_FAILED SET_NON_GRANTED_ROLE ACCESS_DENIED",
        404: (
            "UNKNOWN_TABLE UNKNOWN_FUNCTION UNKNOWN_IDENTIFIER UNKNOWN_TYPE UNKNOWN_STORAGE "
            "UNKNOWN_DATABASE UNKNOWN_SETTING UNKNOWN_DIRECTION_OF_SORTING UNKNOWN_AGGREGATE_FUNCTION "
            "UNKNOWN_FORMAT UNKNOWN_DATABASE_ENGINE UNKNOWN_TYPE_OF_QUERY UNKNOWN_ROLE"
        ),
        408: "TIMEOUT_EXCEEDED",
        413: "QUERY_IS_TOO_LARGE",
        501: "NOT_IMPLEMENTED",
        503: "SOCKET_TIMEOUT CANNOT_OPEN_FILE CANNOT_SCHEDULE_TASK",
    }.items()
    for name in names.split()
}


def http_status(error: QueryError) -> int:
    """Return the HTTP status that a ClickHouse server sends with an error."""
    return _STATUS_BY_NAME.get(error.name or "", 500)


def error_text(error: QueryError, version: str) -> str:
    """Return the body that a ClickHouse server sends."""
    return f"{error} (version {version} (embedded))\n"
