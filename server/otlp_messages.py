"""The OTLP messages, with histograms read at the speed of a copy.

``bucket_counts`` (field 6) and ``explicit_bounds`` (field 7) of a ``HistogramDataPoint`` are packed fixed64
and double: on the wire they are what a ``bytes`` field is, a length and then little-endian numbers. So the
fast request is read with a private copy of the official descriptors in which both are ``bytes``, and numpy
looks at the buffer; the official class makes one Python object of each of 165,000 counters in a K3 request.

A sender may also write such fields unpacked or in several pieces. Then the fast message is inconsistent, and
:mod:`moescope.server.otlp_decode` reads the request again with the official class.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1 import resource_pb2

OfficialRequest: TypeAlias = metrics_service_pb2.ExportMetricsServiceRequest
ExportResponse: TypeAlias = metrics_service_pb2.ExportMetricsServiceResponse

EXPORT_METHOD: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
NO_RECORDED_VALUE: Final = metrics_pb2.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
DELTA_TEMPORALITY: Final = metrics_pb2.AGGREGATION_TEMPORALITY_DELTA
UNSPECIFIED_TEMPORALITY: Final = metrics_pb2.AGGREGATION_TEMPORALITY_UNSPECIFIED

_FILES: Final = (common_pb2, resource_pb2, metrics_pb2, metrics_service_pb2)
_POINT: Final = "HistogramDataPoint"
_PACKED_FIELDS: Final = frozenset({"bucket_counts", "explicit_bounds"})


def _fast_request_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in _FILES:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            if message.name == _POINT:
                _read_packed_as_bytes(message)
        pool.Add(file)
    descriptor = pool.FindMessageTypeByName(OfficialRequest.DESCRIPTOR.full_name)
    return message_factory.GetMessageClass(descriptor)


def _read_packed_as_bytes(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        if field.name in _PACKED_FIELDS:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
            field.ClearField("options")


FastRequest: Final[Any] = _fast_request_class()
